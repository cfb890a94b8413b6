"""Histories in files: what is written is read again, and what is no history is refused, with the line's number."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from stories import OWNS, READS, P, Q, Say, commits, done, poll, tell

from instride.errors import HistoryError
from instride.records import TopicPartition
from instride.testing._check.command import main
from instride.testing._check.vocabulary import KINDS
from instride.testing.check import BROKER, Event, check, decode, encode, read_histories, write
from instride.testing.simulation import plan_for, run

ROOT = Path(__file__).parents[3]


def saved(path: Path, events: list[Event]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        write(events, file)
    return path


def test_a_history_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    for seed in range(5):
        history = run(plan_for(seed), keep_logs=True)
        path = saved(tmp_path / "history.jsonl", history.events)
        again = [each.event for each in read_histories([path])]
        assert [encode(each) for each in again] == [encode(each) for each in history.events]
        assert [each[1:3] for each in again] == [each[1:3] for each in history.events]
        assert check(again) == check(history) == []


def test_each_kind_keeps_its_detail() -> None:
    for event in tell(*READS, *commits("A", 5), (BROKER, "end", True)):
        assert decode(encode(event))[1:] == event[1:]


def test_files_of_one_history_are_merged_by_time(tmp_path: Path) -> None:
    events = tell(*READS, *commits("A", 5))
    a = saved(tmp_path / "a.jsonl", [each for each in events if each.who == "A"])
    rest = saved(tmp_path / "b.jsonl", [each for each in events if each.who != "A"])
    assert [encode(each.event) for each in read_histories([rest, a])] == [encode(each) for each in events]
    assert main([str(a), str(rest)]) == 0


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`folder.glob("*.jsonl")` names the file of the last recorder, too, where it is there from an earlier run."""
    events = tell(*READS, *commits("A", 5))
    path = saved(tmp_path / "a.jsonl", events)
    (tmp_path / "link.jsonl").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    files = [path, path, Path("a.jsonl"), tmp_path / "link.jsonl"]
    assert len(list(read_histories(files))) == len(events)


LONG = '{"t":0.5,"who":"broker","what":"hole","partition":["t",0],"first":3,"last":9}'
POLL = '{"t":0.5,"who":"A","what":"poll","records":[[["t",0],1,0,3,4,5]],"to_be_revoked":[],"lost":[]}'
GOOD = encode(Event(0.5, "A", "done", (P, 3, 1)))


def test_a_field_that_need_not_be_told_is_none_where_it_is_not() -> None:
    told = Event(0.5, "A", "done", (P, 3, 1, 7))
    assert encode(told) == GOOD.replace("}", ',"leader_epoch":7}')
    assert decode(encode(told)) == told
    assert decode(GOOD).detail == (P, 3, 1)


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("nonsense", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        (GOOD.replace("0.5", '"soon"'), '"t" must be a number of seconds, not'),
        (GOOD.replace("0.5", "NaN"), '"t" must be a number of seconds, not nan'),
        (GOOD.replace("0.5", "1" + "0" * 400), '"t" must be a number of seconds, not 1'),
        ("[" * 100_000, "not JSON"),
        (GOOD.replace('"A"', "7"), '"who" and "what" must be texts'),
        (GOOD.replace("done", "dnoe"), "no kind of event 'dnoe'"),
        (GOOD.replace("epoch", "epoche"), "the fields of 'done' are partition, offset, epoch; not partition, offset,"),
        (GOOD.replace("epoch", "leader_epoch"), "the fields of 'done' are partition, offset, epoch, leader_epoch; not"),
        (GOOD.replace(":3", ":-3"), "'offset' of 'done' must be an offset, which is not negative; it is -3"),
        (GOOD.replace(":3", ":true"), "'offset' of 'done' must be a whole number; it is true"),
        (GOOD.replace('["t",0]', '["t"]'), "'partition' of 'done' must be a list of 2"),
        (GOOD.replace("0.5", "0.4"), "its time is 0.4, and the line before has 0.5"),
        ('{"t":1,"who":"A","what":"history","version":7}', "the fields of 'history' are version, source"),
        ("", "not JSON"),
        (GOOD[:30], "not JSON"),
        ("\0" * 30, "not JSON"),
        ("\ufeff" + GOOD, "not JSON"),
        ('{"t":1,"who":"A","what":"note","detail":' + "[" * 800 + "]" * 800 + "}", "too deep"),
        (
            LONG.replace("9", "1" + "0" * 12),
            "'hole' must be a stretch of 1 to 1,000,000 offsets; it is 3 to 1000000000000",
        ),
        (LONG.replace("9", "2"), "'hole' must be a stretch of 1 to 1,000,000 offsets; it is 3 to 2"),
        (POLL.replace("4,5", "2,5"), "'records' of 'poll' must be a stretch of 1 to 1,000,000 offsets"),
        (POLL.replace("4,5", "4"), "'records' of 'poll' must be a list of 6"),
        ('{"t":1,"who":"A","what":"produced","partition":["t",0],"end":' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_garbage_is_refused_with_its_line(
    line: str, output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(HistoryError, match=re.escape(output)) as raised:
        list(read_histories([path]))
    assert str(raised.value).startswith(f"{path}, line 2: ")
    assert main([str(path)]) == 2
    assert "line" in capsys.readouterr().err


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(HistoryError, match="line 1"):
        list(read_histories([path]))


def test_another_version_is_refused(tmp_path: Path) -> None:
    head = encode(tell()[0]).replace('"version":1', '"version":2')
    with pytest.raises(HistoryError, match="its version is 2; this checker knows version 1"):
        decode(head)


def test_half_a_line_at_the_end_is_what_a_killed_process_leaves(tmp_path: Path) -> None:
    path = saved(tmp_path / "history.jsonl", tell(*READS))
    count = len(list(read_histories([path])))
    with path.open("a") as file:
        file.write(GOOD[:20])
    assert len(list(read_histories([path]))) == count


def test_a_whole_line_without_its_end_is_read_like_any_other(tmp_path: Path) -> None:
    path = saved(tmp_path / "history.jsonl", tell(*READS))
    count = len(list(read_histories([path])))
    whole = GOOD.replace("0.5", "9.5")
    path.write_text(path.read_text() + whole)
    assert len(list(read_histories([path]))) == count + 1
    path.write_text(path.read_text()[: -len(whole)] + whole.replace("done", "dnoe"))
    with pytest.raises(HistoryError, match="no kind of event 'dnoe'"):
        list(read_histories([path]))


@pytest.mark.parametrize(
    ("output", "line", "why"),
    [
        ([*OWNS, ("A", "started", True, "told", True)], 8, "two members are called 'A': each needs a name of its own"),
        ([("broker", "started", True, "told", True)], 2, "two members are called 'broker'"),
        ([*READS, (BROKER, "end", False), poll("A", 5, 9)], 11, "'poll' comes after the event \"end\""),
        ([*READS, ("A", "history", *tell(kind="slow")[0].detail)], 10, "two files say that they are of different"),
        ([*READS, ("A", "revoked", ((Q, 1),))], 10, "A was never assigned t-1 in epoch 1"),
        ([*READS, ("B", "done", P, 1, 1)], 10, "B was never assigned t-0 in epoch 1"),
        ([*READS, ("A", "positioned", P, 2, 7)], 10, "A was never assigned t-0 in epoch 2"),
    ],
)
def test_what_cannot_have_been_is_refused_with_its_line(
    output: list[Say | float], line: int, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "history.jsonl", tell(*output))
    assert main([str(path)]) == 2
    assert f"{path}, line {line}: {why}" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"", b"{", GOOD[:-1].encode(), b"\xff"])
def test_a_file_with_nothing_in_it_is_no_history(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(data)
    assert main([str(path)]) == 2
    assert f'{path}: a history needs the event "history"' in capsys.readouterr().err


def test_a_run_that_was_cut_off_is_judged_as_far_as_it_goes() -> None:
    output = [*READS, ("A", "revoked", ((P, 1),)), ("B", "assigned", 2, ((P, 1),)), ("B", "looked up", P, None, 0)]
    history = tell(*output, ("B", "positioned", P, 1, 0), poll("B", 0, 4))
    assert [each.number for each in check(history)] == ["S1"] * 5


def test_what_contradicts_itself_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "history.jsonl", tell(*OWNS, poll("A", 0, 4, epoch=9)))
    assert main([str(path)]) == 2
    assert f"{path}, line 8: A was never assigned t-0 in epoch 9" in capsys.readouterr().err
    no_head = saved(tmp_path / "headless.jsonl", tell(*READS)[1:])
    assert main([str(no_head)]) == 2
    assert main([str(tmp_path / "missing.jsonl")]) == 2
    two = saved(tmp_path / "two.jsonl", [tell()[0], tell(kind="slow")[0]])
    assert main([str(two)]) == 2
    with pytest.raises(HistoryError, match="needs the event"):
        check([])


def test_the_command_says_what_is_violated_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "history.jsonl", tell(*OWNS, poll("A", 0, 4), done("A", 0, 2), *commits("A", 5)))
    assert main([str(path)]) == 1
    output = capsys.readouterr().out
    assert "S4, no commit beyond a gap: A: t-0 at 5; 3 is not done" in output
    assert f'{path}, line 11: {{"t":0.1,"who":"A","what":"commit"' in output
    assert "12 events, 1 violations. Judged: S1 S3 S4 S5 S6 S7 S8 S9 S11 L1 P1 P3 P4 P5" in output
    assert "It tells nothing of: S2 S10 L2 L3 L4 L5 R1 P2" in output


def test_what_is_violated_is_told_though_a_name_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON may name half a character: the command ended with a traceback."""
    topic = "half \ud83d"
    said = [("A", "started", True, "told", True), ("A", "sends commit", 1, ((TopicPartition(topic, 0), 5, 1),))]
    path = saved(tmp_path / "history.jsonl", tell(*said, ("A", "commit", 1, ((TopicPartition(topic, 0), 5, 0),))))
    assert main([str(path)]) == 1
    assert "A: half \\ud83d-0 at 5" in capsys.readouterr().out


def test_the_command_is_content_with_a_simulated_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "history.jsonl", run(plan_for(5)).events)
    assert main([str(path)]) == 0
    assert "0 violations" in capsys.readouterr().out


def test_the_page_names_each_kind_with_its_fields() -> None:
    page = (ROOT / "docs" / "histories.md").read_text(encoding="utf-8")
    for kind, fields in KINDS.items():
        names = ", ".join(f"`{each.name}`" for each in fields) or "-"
        assert f"| `{kind}` | {names} |" in page, kind


def test_the_example_of_the_page_is_a_history(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "histories.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "example.jsonl"
    path.write_text(example)
    events = [each.event for each in read_histories([path])]
    assert check(events) == []
    assert [json.loads(encode(each)) for each in events] == [json.loads(line) for line in example.splitlines()]
