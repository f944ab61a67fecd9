"""`help`: what a message names is there without a checkout, and an unknown word has its nearest."""

from __future__ import annotations

import pytest

from pipelines.command_line.main import main


@pytest.mark.parametrize(
    ("word", "page", "text"),
    [
        ("nodes_have_one_name", "docs/troubleshooting.md", "### nodes_have_one_name"),
        ("source_cluster_answers", "docs/troubleshooting.md", "### source_NAME_answers"),
        ("known_cost_usd", "docs/figures.md", "## known_cost_usd"),
        ("tariff", "docs/fleet_file.md", "### `sites[].tariff[]`"),
    ],
)
def test_a_word_has_its_section(capsys: pytest.CaptureFixture[str], word: str, page: str, text: str) -> None:
    assert main(["help", word]) == 0
    shown = capsys.readouterr().out
    assert page in shown
    assert text in shown
    assert len(shown.splitlines()) < 100


@pytest.mark.parametrize(
    ("words", "title"),
    [(["docs/install.md"], "# Install"), (["install"], "# Install"), ([], "# Wattledger\n\n> **For** everyone")],
    ids=["path", "name", "none"],
)
def test_a_page_that_a_message_names_is_printed(
    capsys: pytest.CaptureFixture[str], words: list[str], title: str
) -> None:
    """Without a word it is the page that names the others."""
    assert main(["help", *words]) == 0
    assert capsys.readouterr().out.startswith(title)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("cost_are_usual", "; nearest: costs_are_usual"),
        ("host_wats", "; nearest: host_watts"),
        ("../README", "; nearest: reader"),  # no file beside the pages is read
        ("xyzzy", ""),
    ],
)
def test_an_unknown_word_has_the_nearest(capsys: pytest.CaptureFixture[str], word: str, near: str) -> None:
    assert main(["help", word]) == 2
    assert capsys.readouterr().err == f"help {word}: no page has it{near}\n"
