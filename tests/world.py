"""The names of `tests.kit.run`, for tests that import them from here."""

from tests.kit.run import CONCEPTS as CONCEPTS
from tests.kit.run import LEVELS as LEVELS
from tests.kit.run import RECIPE as RECIPE
from tests.kit.run import World as World
from tests.kit.run import make_world as make_world
from tests.kit.run import write_store as write_store
