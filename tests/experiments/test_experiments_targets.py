"""Targets: a task names the kind of its labels and predictions."""

import msgspec
import pytest

from obygaze_models.data.tasks import Task, concept_task

NAMES = {"EN": "Easy Negative", "HN": "Hard Negative", "S": "Sure"}


def test_a_task_of_an_unknown_target_is_refused_by_name():
    content = msgspec.to_builtins(concept_task(NAMES, "Look")) | {"target_key": "clases"}
    with pytest.raises(msgspec.ValidationError, match="did you mean classes"):
        msgspec.convert(content, Task)
