"""What writes docs/conformance.md: it reads every form of marker, tells what it does not know, and hides no gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.__main__ import main
from conformance.markers import Proof, proofs_in
from conformance.page import conformance_page
from conformance.requirements import Document, Requirement, read_documents
from conformance.results import Result, read_results

TESTS = """
import pytest
pytestmark = [pytest.mark.kafka, pytest.mark.requirement("A/1")]
@pytest.mark.vector(3)
@pytest.mark.rule("full-speed")
def test_one() -> None: ...
class TestMore:
    @pytest.mark.spark
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("A/2"))])
    def test_two(self) -> None: ...
def helper() -> None: ...
"""
LIST = """
title = "A"
about = "About A."
[[requirement]]
id = "A/1"
section = "first"
text = "It works."
[[requirement]]
id = "A/2"
section = "second"
text = "It ends."
[[requirement]]
id = "A/3"
section = "third"
text = "It dances."
not_ours = "a wish"
"""
REPORT = """
<testsuites><testsuite>
<testcase classname="tests.deep.test_it" name="test_one[a]"/>
<testcase classname="tests.deep.test_it" name="test_one[b]"><skipped message="no broker"/></testcase>
<testcase classname="tests.deep.test_it.TestMore" name="test_two"><failure message="no"/></testcase>
<testcase classname="tests.kafka.test_so" name="test_so"><skipped message="no broker"/></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    requirements = tmp_path / "tests" / "conformance" / "requirements"
    requirements.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (requirements / "a.toml").write_text(LIST)
    (tmp_path / "tests" / "test_a.py").write_text(
        'import pytest\n@pytest.mark.requirement("A/1")\ndef test_it_works() -> None: ...\n'
    )
    return tmp_path


def test_markers_are_read_wherever_they_stand(tmp_path: Path) -> None:
    for folder in ("deep", "kafka"):
        (tmp_path / folder).mkdir()
    (tmp_path / "deep" / "test_it.py").write_text(TESTS)
    (tmp_path / "kafka" / "test_so.py").write_text(
        "import pytest\n@pytest.mark.vector(4)\ndef test_so() -> None: ...\n"
    )
    assert proofs_in(tmp_path) == [
        Proof("deep/test_it.py", "test_one", "A/1", "kafka"),
        Proof("deep/test_it.py", "test_one", "rule/full-speed", "kafka"),
        Proof("deep/test_it.py", "test_one", "vector/3", "kafka"),
        Proof("deep/test_it.py", "test_two", "A/1", "spark"),
        Proof("deep/test_it.py", "test_two", "A/2", "spark"),
        Proof("kafka/test_so.py", "test_so", "vector/4", "kafka"),
    ]


def test_an_argument_that_cannot_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.vector(NUMBER)\ndef test_one() -> None: ...\n")
    with pytest.raises(ValueError, match=r"test_it.py:2: the argument of the marker 'vector'"):
        proofs_in(tmp_path)


def test_an_id_is_given_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(LIST)
    with pytest.raises(ValueError, match="given twice: A/1, A/2, A/3"):
        read_documents(tmp_path)


def test_a_row_has_one_status(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(LIST + 'absent = "later"\n')
    with pytest.raises(ValueError, match="more than one status: A/3"):
        read_documents(tmp_path)


def test_a_row_says_its_status_and_what_shows_it_or_that_nothing_does() -> None:
    rows = [
        Requirement(id="A/1", section="first", text="It works."),
        Requirement(id="A/2", section="second", text="It ends."),
        Requirement(id="A/3", section="third", text="It dances.", not_ours="a wish"),
        Requirement(id="A/4", section="fourth", text="It sings.", deviates="it hums"),
        Requirement(id="A/5", section="fifth", text="It flies.", absent="no wings yet"),
    ]
    page = conformance_page(
        [Document(title="A", about="About A.", requirements=tuple(rows))],
        [Proof("x/test_a.py", "test_it_works", "A/1", "kafka"), Proof("test_b.py", "test_so", "A/1", "")],
    )
    assert "| [A](#a) | 5 | 2 | 1 | 1 | 1 | 2 |" in page
    shown = "[so](../tests/test_b.py)<br>[it works](../tests/x/test_a.py) (Kafka)"
    assert f"| A/1 | It works. | first | fulfilled | {shown} |" in page
    assert "| A/2 | It ends. | second | fulfilled | **no test yet** |" in page
    assert "| A/3 | It dances. | third | not ours: a wish |  |" in page
    assert "| A/4 | It sings. | fourth | deviates: it hums | **no test yet** |" in page
    assert "| A/5 | It flies. | fifth | absent: no wings yet |  |" in page


def test_a_report_gives_each_test_one_result(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert read_results(tmp_path / "report.xml") == {
        ("deep/test_it.py", "test_one"): Result.PASSED,
        ("deep/test_it.py", "test_two"): Result.FAILED,
        ("kafka/test_so.py", "test_so"): Result.NOT_RUN,
    }


def test_a_row_is_shown_by_tests_that_passed_in_this_run_alone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = project / "report.xml"
    case = '<testsuite><testcase classname="tests.test_a" name="test_it_works">{}</testcase></testsuite>'
    markers = '@pytest.mark.requirement("A/2")\ndef test_it_ends() -> None: ...\n'
    (project / "tests" / "test_b.py").write_text("import pytest\n" + markers)
    report.write_text(case.format(""))
    assert main(["--results", str(report)], root=project) == 1, "A/2 was not run"
    output = capsys.readouterr().out
    assert "not run here: test_b.py::test_it_ends (of A/2)" in output
    assert "NOT SHOWN A/2: no test of it passed in this run" in output
    assert "1 of 2 requirements" in output
    (project / "tests" / "test_b.py").write_text("")
    (project / "tests" / "test_a.py").write_text(
        'import pytest\n@pytest.mark.requirement("A/1")\n@pytest.mark.requirement("A/2")\n'
        "def test_it_works() -> None: ...\n"
    )
    assert main(["--results", str(report)], root=project) == 0
    report.write_text(case.format("<skipped/>"))
    assert main(["--results", str(report)], root=project) == 0, "this machine lacks what it needs: named, no failure"
    output = capsys.readouterr().out
    assert "not run here: test_a.py::test_it_works (of A/1, A/2)" in output
    assert "0 of 2 requirements" in output
    report.write_text(case.format("<failure/>"))
    assert main(["--results", str(report)], root=project) == 1
    assert "NOT SHOWN A/1: failed: test_a.py::test_it_works" in capsys.readouterr().out


def test_a_page_that_is_out_of_date_is_found_and_written_anew(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"], root=project) == 1
    assert "make docs" in capsys.readouterr().err
    assert main([], root=project) == 0
    assert main(["--check"], root=project) == 0
    assert "[it works]" in (project / "docs" / "conformance.md").read_text()


def test_a_marker_that_names_no_requirement_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests" / "test_b.py").write_text(
        'import pytest\n@pytest.mark.requirement("A/9")\ndef test_it_flies() -> None: ...\n'
    )
    assert main([], root=project) == 2
    assert "test_b.py::test_it_flies: A/9" in capsys.readouterr().err


def test_a_case_that_was_skipped_is_named_though_others_of_its_test_passed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = project / "report.xml"
    head = '<testcase classname="tests.test_a" name="test_it_works[{}]">{}</testcase>'
    nobodys = '<testcase classname="tests.test_c" name="test_of_no_row[b]"><skipped/></testcase>'
    cases = head.format("a", "") + head.format("b", "<skipped/>") + nobodys + nobodys.replace("<skipped/>", "")
    report.write_text(f"<testsuite>{cases}</testsuite>")
    (project / "tests" / "test_b.py").write_text(
        'import pytest\n@pytest.mark.requirement("A/2")\ndef test_it_ends() -> None: ...\n'
    )
    main(["--results", str(report)], root=project)
    output = capsys.readouterr().out
    assert "not run here: test_a.py::test_it_works[b]" in output
    assert "test_it_works[a]" not in output
    assert "test_of_no_row" not in output, "it proves no row"


def test_what_a_test_did_not_play_in_this_run_it_does_not_show(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No failure either: another commit draws another part. Where the test fails, it fails all its rows."""
    report = project / "report.xml"
    (project / "tests" / "test_a.py").write_text(
        'import pytest\n@pytest.mark.requirement("A/1", "A/2")\ndef test_it_works() -> None: ...\n'
    )
    played = '<properties><property name="requirement" value="A/2"/></properties>'
    case = '<testsuite><testcase classname="tests.test_a" name="test_it_works">{}</testcase></testsuite>'
    report.write_text(case.format(played))
    assert main(["--results", str(report)], root=project) == 0
    output = capsys.readouterr().out
    assert "not run here: test_a.py::test_it_works (of A/1)" in output
    assert "1 of 2 requirements" in output
    report.write_text(case.format("<failure/>"))
    assert main(["--results", str(report)], root=project) == 1
    output = capsys.readouterr().out
    assert "NOT SHOWN A/1: failed" in output
    assert "NOT SHOWN A/2: failed" in output
