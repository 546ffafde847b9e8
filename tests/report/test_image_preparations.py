"""Which images a table was measured on: said everywhere, with the commands that prepare and use them."""

from itertools import product

import pytest

from semishot.data.settings import AUTHORS, VARIANTS, DatasetVariant
from semishot.paper import published as paper
from semishot.report import image_preparations as preparations
from semishot.report import page, results, table_sections
from semishot.report.ablation_tables import ablations_section
from semishot.report.baseline_tables import table5_section
from semishot.report.curves import curves_section
from semishot.report.grouping import group
from semishot.report.mask_tables import masks_section
from semishot.report.reading import Results
from semishot.report.rendering import as_markdown, as_text
from semishot.training.result_files import publish
from support.records import ablation, baseline, masks, record

PREPARE = "semishot data prepare omniglot --download --reduction cubic --rotations warped --data-root FOLDER"
ELSEWHERE = {"preparation": "cubic-warped"}
TABLE1 = paper.TABLES["table1"]


def table1(**changes) -> list[dict]:
    return [record(split_seed=seed, **changes) for seed in (0, 1)]


def test_every_way_to_prepare_a_data_set_has_a_name_and_the_flags_that_make_it():
    usual, drawings = DatasetVariant("omniglot", ("antialiased", "exact")), AUTHORS["omniglot"]
    assert len(VARIANTS) == 4 + 2
    assert VARIANTS["omniglot", ""] == usual
    assert usual.flags == []
    assert VARIANTS["omniglot", "cubic-warped"] == drawings
    assert drawings.flags == ["--reduction", "cubic", "--rotations", "warped"]
    assert VARIANTS["omniglot", "warped"].flags == ["--rotations", "warped"]
    assert VARIANTS["mini-imagenet", "swapped"] == AUTHORS["mini-imagenet"]
    assert AUTHORS["mini-imagenet"].flags == ["--lists", "swapped"]
    assert VARIANTS["mini-imagenet", ""].flags == []


@pytest.mark.parametrize(
    ("section", "command"),
    [
        (table_sections.table_section("table1", TABLE1, table1(**ELSEWHERE)), "table1"),
        (curves_section(table1(**ELSEWHERE)), "figure-unlabeled"),
        (table5_section([baseline(**ELSEWHERE)]), "table5"),
        (masks_section([masks(**ELSEWHERE)]), "figure-masks"),
        (ablations_section([ablation(**ELSEWHERE)]), "ablations"),
    ],
)
def test_what_was_measured_on_other_images_is_measured_again_on_them(section, command):
    assert section.prepare == PREPARE
    for _, each in section.commands:
        assert each.startswith(f"semishot reproduce {command} ")
        assert each.endswith(" --data-root FOLDER")
    again = f"To run it again: `{PREPARE}`, then `{section.commands[0][1]}`."
    assert as_markdown(section).splitlines()[-1].endswith(again)


def test_the_commands_of_the_usual_images_have_no_data_root():
    for section in (
        table_sections.table_section("table1", TABLE1, table1()),
        masks_section([masks()]),
    ):
        assert section.prepare == ""
        assert "--data-root" not in section.commands[0][1]


def test_the_usual_images_say_in_a_line_that_the_authors_code_makes_others():
    for section in (
        table_sections.table_section("table1", TABLE1, table1()),
        table5_section([baseline()]),
    ):
        (line,) = [line for line in as_text(section).splitlines() if "differently; to" in line]
        assert line == (
            "On images prepared as usual, reduced with antialiasing and rotated exactly. The authors' code "
            f"prepares them differently; to compare with the paper: `{PREPARE}`, then the same command with "
            "`--data-root FOLDER`."
        )
    other = preparations.about_images(table1(preparation="cubic"))
    assert other.startswith(
        "On images prepared in another way, reduced by OpenCV's cubic filter "
        "without antialiasing and rotated exactly."
    )
    assert PREPARE in other


def test_the_authors_images_are_said_to_be_theirs_and_other_recipes_say_nothing():
    section = table_sections.table_section("table1", TABLE1, table1(**ELSEWHERE))
    assert section.images.startswith(
        "On images prepared as in the authors' code: reduced by OpenCV's"
    )
    assert section.images.endswith("Compare this table with the paper.")
    assert table_sections.table_section("table1", TABLE1, table1(preset="semishot")).images == ""
    tiered = table1(dataset="tiered-imagenet", unlabeled=20, query=20)
    assert (
        preparations.about_images(tiered)
        == preparations.prepare_command_of(tiered)
        == preparations.data_root_flag(tiered)
        == ""
    )


def test_photographs_say_which_classes_the_paper_was_tested_on(tmp_path):
    usual, theirs = (
        [
            record(dataset="mini-imagenet", query=20, unlabeled=20, split_seed=seed, **changes)
            for seed in (0, 1)
        ]
        for changes in ({}, {"preparation": "swapped"})
    )
    prepare = (
        "semishot data prepare mini-imagenet --source IMAGES --lists swapped --data-root FOLDER"
    )
    assert preparations.about_images(usual) == (
        "On images prepared as usual, with the usual lists of classes. The first version of the authors' "
        f"code prepares them differently; to compare with the paper: `{prepare}`, then the same command with "
        "`--data-root FOLDER`."
    )
    assert preparations.about_images(theirs) == (
        "On images prepared as in the first version of the authors' code: with the lists of validation "
        "and test classes exchanged. Compare this table with the paper."
    )
    assert preparations.prepare_command_of(theirs) == prepare
    publish(usual, tmp_path / "mini-imagenet" / "table2-a.json")
    publish(theirs, tmp_path / "mini-imagenet" / "table2-b.json")
    text = results.results_markdown(tmp_path)
    assert text.index("updates, images prepared `swapped`\n") < text.index("updates\n")
    assert "| Table 2, mini-imagenet, swapped | ren2018 |" in text
    assert "Tables of `swapped` are on the classes" in text
    assert "Tables of `cubic-warped`" not in text
    assert "Compared with the authors' images" not in text  # other classes: no split has a partner


def test_the_page_shows_the_authors_images_first_and_compares_the_usual_ones_with_them(tmp_path):
    gaps = {0: 0.02, 1: 0.04}
    usual = [record(split_seed=seed, accuracy=0.9 + gap) for seed, gap in gaps.items()]
    beyond = table1(preset="semishot", recipe={}, train={})
    glyphs = table1(dataset="glyphs", preset="demo")
    publish(glyphs, tmp_path / "glyphs" / "table1-demo.json")
    publish(beyond, tmp_path / "omniglot" / "table1-another.json")
    publish(table1(preparation="warped"), tmp_path / "omniglot" / "table1-warped.json")
    publish(usual, tmp_path / "omniglot" / "table1-b.json")
    publish(table1(**ELSEWHERE), tmp_path / "omniglot" / "table1-c.json")
    text = results.results_markdown(tmp_path)
    order = ["`cubic-warped`\n", "updates\n", "`warped`\n", "preset `semishot`", "preset `demo`"]
    titles = [line + "\n" for line in text.splitlines() if line.startswith("## ")][1:6]
    assert all(each in title for each, title in zip(order, titles, strict=True)), titles
    # paired: a mean of 3 points with an error of 1
    where = "Compared with the authors' images on the same splits, 1-shot, M = 5, w/ distractors"
    said = f"{where}: Masked Soft k-Means +3.00 (t +3.0)"
    assert text.count(said) == text.count("Compared with the authors' images") == 1
    assert text.index(titles[1].strip()) < text.index(said) < text.index(titles[2].strip())
    said = text.replace("\n", " ")
    assert "Tables of `cubic-warped` are on images prepared as in the authors' code" in said
    assert "Tables of `swapped`" not in said
    assert "| Table 1, omniglot, cubic-warped | ren2018 | 20,000 | 1 (of 10) | 0 | 0 | 1 |" in text


def test_a_table_is_compared_at_each_of_its_shots(tmp_path):
    def records(gap: float, preset: str) -> list[dict]:
        test = {"dataset": "mini-imagenet", "preset": preset, "query": 20, "unlabeled": 20}
        return [
            record(
                **test, distractors=0, shot=shot, split_seed=seed, accuracy=0.5 + gap * (1 + seed)
            )
            for seed, shot in product((0, 1), (1, 5))
        ]

    publish(records(0.0, "ren2018"), tmp_path / "mini-imagenet" / "table2-a.json")
    publish(records(0.01, "ren2018-text"), tmp_path / "mini-imagenet" / "table2-b.json")
    text = results.results_markdown(tmp_path)
    for shot in (1, 5):
        where = f"the schedule of the code on the same splits, {shot}-shot, M = 20, no distractors"
        assert text.count(f"Compared with {where}: Masked Soft k-Means +1.50 (t +3.0)") == 1
    assert text.count("Compared with the schedule of the code") == 2


def test_a_table_of_a_preset_that_is_gone_is_still_shown(tmp_path):
    gone = table1(preset="semishot", dataset="mini-imagenet", query=20, unlabeled=20)
    publish(gone, tmp_path / "mini-imagenet" / "table2-semishot.json")
    text = results.results_markdown(tmp_path)
    assert "preset `semishot`, 20,000 updates\n\nA preset that this version lacks." in text
    assert "--preset semishot --splits 2 --updates 20000" in text


def test_the_schedule_of_the_text_is_compared_with_that_of_the_code_on_the_same_images(tmp_path):
    def records(gap: float, **changes) -> list[dict]:
        return [
            record(
                split_seed=seed,
                accuracy=0.9 + gap * (1 + seed),
                unlabeled=m,
                query=query,
                **changes,
            )
            for seed, (m, query) in product((0, 1), ((5, 14), (10, 9)))
        ]

    code, text = records(0.0), records(0.02, preset="ren2018-text", recipe={})
    elsewhere = [row | ELSEWHERE for row in text]
    glyphs = [row | {"dataset": "glyphs"} for row in text]
    for name, rows in {"a": code, "b": text, "c": elsewhere, "d": glyphs}.items():
        publish(rows, tmp_path / "omniglot" / f"table1-{name}.json")
    made = results.results_markdown(tmp_path)
    where = (
        "Compared with the schedule of the code on the same splits, 1-shot, M = 5, w/ distractors"
    )
    assert made.count(f"{where}: Masked Soft k-Means +3.00 (t +3.0)") == 1
    assert made.count("Compared with the schedule of the code") == 1


def test_the_report_shows_the_authors_images_first_and_how_to_prepare_them():
    files = {"a": table1(), "b": table1(**ELSEWHERE)}
    glyphs = table1(dataset="glyphs")
    first = group({"0": glyphs, **files}).tables[0]
    assert first.records[0]["dataset"] == "omniglot"
    assert [g.records[0].get("preparation", "") for g in group(files).tables] == [
        "cubic-warped",
        "",
    ]
    html = page.as_html(Results(files, [], []), None, 0)
    assert "first, the images" in html
    assert "<span>warped</span>" in html


def test_settings_of_their_own_for_each_column_at_test_are_said():
    plain, told = {"steps": 10, "cluster": False}, {"steps": 2, "threshold": 0.3}
    both = [record(distractors=h, at_test=own) for h, own in ((0, plain), (5, told))]
    assert table_sections.settings_at_test(both) == [
        "Masked Soft k-Means has another setting at test in each column (no distractors: steps 10, "
        "cluster no; w/ distractors: steps 2, threshold 0.3), so it uses the knowledge of whether there are "
        "distractors."
    ]
    assert table_sections.settings_at_test(both[:1]) == []
    assert table_sections.settings_at_test([r | {"at_test": plain} for r in both]) == []
    assert table_sections.settings_at_test(table1()) == []
