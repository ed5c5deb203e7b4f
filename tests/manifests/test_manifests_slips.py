"""User errors: one line with the fact, exit code 1, nothing written."""

import pytest

from tests.kit.authors import COLUMNS, SIX_CLIPS, clip_row, clip_table
from tests.kit.files import refused, touch, write
from tests.manifests.test_manifests_accede import VIOLENCE

BODY = clip_row(1, "Sure", "['Body']")
SURE = clip_row(9, "Sure", "['Body']")
OUTSIDE = SURE.replace("tt0108160_scene_9.avi", "../../etc/passwd")
OPEN = f'{";".join(COLUMNS)}\n"{BODY}\n'


#: Importer and options, its source (a file's text, a folder's files as name -> text), the fact.
SLIPS = [
    ("obygaze12", clip_table(*SIX_CLIPS, OUTSIDE), "media '../../etc/passwd' is not a file name"),
    ("obygaze12", clip_table(BODY).replace(b"util", b"idx"), "line 1: duplicate column 'idx'"),
    ("obygaze12", clip_table(BODY).replace(b"srt;", b"srt\xe9;"), "is not UTF-8; save it as CSV"),
    ("obygaze12", OPEN, "line 2 or later: unexpected end of data"),
    ("obygaze12", {"a.csv": ""}, "cannot be read: Is a directory"),
    ("csv --column colour=x", "id,x\na,1\n", "unknown meaning 'colour'; choose from id, kind"),
    ("csv --column id=x", "id\na\n", "no column 'x'"),
    ("csv", b"", "is empty; pass a CSV file with a header"),
    ("csv", "id\n", "the source has no items"),
    ("csv", "id,kind\na,film\n", "line 2: unknown kind 'film'"),
    ("csv", "id,film\na,x/y\n", "line 2: film 'x/y' is a path"),
    ("csv", "id,start,end\na,0:75:00,9000\n", "line 2: start '0:75:00' is not a time"),
    ("csv --levels calm.toml", "id,level\na,calm\n", "calm.toml does not exist; pass levels"),
    ("csv --levels calm,Calm", "id,level\na,calm\n", "two levels are called 'Calm'"),
    ("folder", {"a/x.mp4": "", "a/x.avi": ""}, "duplicate id 'a-x'"),
    ("folder", {"a/readme.txt": ""}, "has no clip in a known format"),
    ("prompts --template {}", "stimulus,text\na,b\n", "line 1: column 'te"),
    ("prompts --template photo", "stimulus\na\n", "the template 'photo' must"),
    ("accede", {"MEDIAEVALviolence.txt": VIOLENCE[:-1] + "2"}, "line 4: unknown level '2'"),
]


@pytest.mark.parametrize(("importer", "content", "fact"), SLIPS, ids=[slip[2] for slip in SLIPS])
def test_user_errors_of_importers_are_one_line(importer, content, fact, tmp_path, obygaze):
    source = tmp_path / "source.csv"
    if isinstance(content, dict):
        for name, text in content.items():
            write(source / name, *text.replace(" ", "\t").split("|"))
    elif isinstance(content, bytes):
        source.write_bytes(content)
    else:
        write(source, content)
    name, *options = importer.split()
    result = obygaze("manifests", "import", name, source, *options, "-o", tmp_path / "m")
    refused(result, fact, code=2 if result.exit_code == 2 else 1)
    assert not (tmp_path / "m").exists()


def test_other_folders_are_refused_as_manifests(source, tmp_path, manifest, obygaze):
    films = touch(tmp_path / "films", "film.mkv")
    result = obygaze("manifests", "import", "obygaze12", source, "-o", films, "--overwrite")
    refused(result, "is not what this command makes")
    assert (films / "film.mkv").exists()
    show = ("manifests", "show")
    refused(obygaze(*show, films), "it has no manifest.json")
    result = obygaze(*show, manifest, "--labels", "papr")
    refused(result, "has no labels/papr; it has paper, raw, released", code=2)
    header = (manifest / "manifest.json").read_text()
    for old, new, fact in (
        ('"format_version": 1', '"format_version": 99', "version 99"),
        ('"code": "EN"', '"code": 5', "[0].c"),
    ):
        (manifest / "manifest.json").write_text(header.replace(old, new))
        refused(obygaze(*show, manifest), fact)
