"""For any document, validate, plan and convert end with findings only, within bounds (see `mutations`)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from properties.mutations import LARGEST, Broken, check, corpus, mutated

from treadle.dsl.document.document import MAX_STAGES
from treadle.dsl.document.workflow_files import load
from treadle.dsl.validation.validate import validate

HEAD = "apiVersion: treadle/v1\nname: w\n"
MAP = "{type: map, uses: 'm:f', input: {range: 1}}"
STAGE = f"stages: {{a: {MAP}}}\n"


def stages(line: str, count: int = MAX_STAGES) -> str:
    return f"{HEAD}stages:\n  s0: {MAP}\n" + "".join(line.format(i=i, j=i - 1) for i in range(1, count))


def items(text: str) -> str:
    return f"{HEAD}stages: {{a: {{type: map, uses: 'm:f', input: {{items: {text}}}}}}}\n"


HEAVY = {
    "unknown_references": stages("  s{i}: {{type: map, uses: 'm:f', input: q{i}}}\n"),
    "unknown_needs": f"{HEAD}stages:\n  a: {MAP[:-1]}, needs: [{','.join(f'q{i}' for i in range(90_000))}]}}\n",
    "unknown_keys": HEAD + STAGE + "".join(f"k{i}: 1\n" for i in range(49_000)),
    "unknown_inputs": f"{HEAD}stages: {{a: {MAP[:-1]}, with: {{"
    + ",".join(f'k{i}: "${{{{inputs.a{i}}}}}"' for i in range(25_000))
    + "}}}\n",
    "stages": stages("  s{i}: {{type: map, uses: 'm:f', input: {{range: 1}}}}\n"),
    "chain_of_maps": stages("  s{i}: {{type: map, uses: 'm:f', input: s{j}}}\n"),
    "chain_of_shuffles": stages("  s{i}: {{type: shuffle, by: key, input: s{j}}}\n"),
    "chain_of_barriers": stages("  s{i}: {{type: barrier, input: s{j}}}\n"),
    "chain_of_quorums": stages("  s{i}: {{type: barrier, input: s{j}, quorum: 50%}}\n"),
    "cached_chain": stages("  s{i}: {{type: map, uses: 'm:f', input: s{j}, cache: true}}\n"),
    "loops": stages(
        "  s{i}: {{type: loop, maxIterations: 2, state: {{x: 1}}, stages: {{t{i}: "
        + MAP.replace("{", "{{").replace("}", "}}")
        + "}}}}\n",
        MAX_STAGES // 2,
    ),
    "one_shuffle_of_many_inputs": f"{HEAD}stages: {{a: {{type: shuffle, by: 'm:f', input: ["
    + ",".join(["{range: 1}"] * 200)
    + "]}}\n",
    "one_shuffle_of_too_many_inputs": f"{HEAD}stages: {{a: {{type: shuffle, by: 'm:f', input: ["
    + ",".join(["{range: 1}"] * 30_000)
    + "]}}\n",
    "too_many_stages": stages("  s{i}: {{type: barrier, input: s{j}}}\n", 15_000),
    "one_wide_list": items(f"[{','.join(['1'] * 99_000)}]"),
    "deep_lists": items("[" * 55 + ",".join(["[[[]]]"] * 33_000) + "]" * 55),
    "too_many_values": items(f"[{','.join(['1'] * 450_000)}]"),
    "long_texts": items(f"['{'a' * (LARGEST - 1000)}']"),
    "long_names": HEAD + STAGE + "".join(f"{'k' * 30_000}{i}: 1\n" for i in range(30)),
    "duplicate_keys": HEAD + STAGE + "x: 1\n" * 49_000,
    "templates": f"{HEAD}stages: {{a: {MAP[:-1]}, with: {{"
    + ",".join(f"k{i}: '${{{{ run.id }}}}{i}'" for i in range(19_000))
    + "}}}\n",
    "outputs": f"{HEAD}{STAGE}outputs:\n" + "".join(f"  k{i}: ${{{{ run.id }}}}\n" for i in range(10_000)),
    "one_template": f"{HEAD}stages: {{a: {MAP[:-1]}, with: {{k: '{'${{ 1+2*3-4 }}' * 17_500}'}}}}}}\n",
    "long_expressions": f"{HEAD}stages: {{a: {MAP[:-1]}, with: {{"
    + ",".join(f"k{i}: '${{{{ [{'1,' * 2000}{i}] }}}}'" for i in range(62))
    + "}}}\n",
    "conditions": stages(
        f"  s{{i}}: {MAP[:-1].replace('{', '{{').replace('}', '}}')}, when: '" + "1 < 2 || " * 90 + "{i} > 0'}}\n", 280
    ),
    "too_many_expressions": f"{HEAD}stages: {{a: {MAP[:-1]}, with: {{k: '{'${{ 1+2*3-4 }}' * 60_000}'}}}}}}\n",
    "long_enum": f"{HEAD}inputs: {{a: {{type: integer, default: 0, enum: [{'1, ' * 90_000}1]}}}}\n{STAGE}",
}

CRASHES = {
    "a_seed_beyond_floats": f'{HEAD}seed: "1e400"\n{STAGE}',
    "a_float_of_400_digits": f"{HEAD}seed: !!float {'9' * 400}\n{STAGE}",
    "a_hex_seed_of_1000_digits": f"{HEAD}seed: 0x{'f' * 990}\n{STAGE}",
    "a_range_of_1000_digits": f"{HEAD}stages: {{a: {{type: map, uses: 'm:f', input: {{range: {'9' * 999}}}}}}}\n",
    "a_pattern_that_repeats_too_often": f"{HEAD}{STAGE}triggers: {{t: {{type: webhook, schema: "
    "{properties: {a: {pattern: 'a{1,9999999999999}'}}}}}\n",
    "a_pattern_that_is_too_deep": HEAD
    + STAGE
    + "triggers: {t: {type: webhook, schema: {pattern: '"
    + "(" * 9999
    + "'}}}\n",
    "a_zero_byte_in_a_uri": f'{HEAD}stages: {{a: {{type: map, uses: "m:f", input: {{uri: "a\\0b", format: text}}}}}}\n',
    "an_open_expression_as_a_column": f"{HEAD}stages: {{b: {{type: shuffle, by: ['${{{{'], input: {{items: [1]}}}}, "
    "a: {type: map, uses: 'm:f', input: b}}\n",
    "half_a_surrogate_pair": f"{HEAD}description: \ud800\n{STAGE}",
}


@pytest.mark.parametrize("text", CRASHES.values(), ids=CRASHES)
def test_odd_document_ends_with_findings(text: str) -> None:
    assert check(text) in ("invalid", "refused", "planned")


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY)
def test_large_document_takes_two_seconds_and_300_mib_at_most(text: str) -> None:
    assert check(text) in ("invalid", "refused", "planned")


def test_findings_beyond_a_hundred_are_counted() -> None:
    found = validate(load(HEAVY["unknown_keys"]))
    assert Counter(one.code for one in found) == {"T012": 100, "T606": 1}
    assert found[-1].message == "48,900 more findings are not listed"


def test_error_is_listed_behind_more_warnings_than_are_listed() -> None:
    braces = ", ".join(f"k{i}: '{{{{ inputs.x }}}}'" for i in range(150))
    found = validate(load(f"{HEAD}stages:\n  a: {MAP[:-1]}, with: {{{braces}}}, needs: [gone]}}\n"))
    assert Counter(one.code for one in found) == {"T605": 100, "T101": 1, "T606": 1}


def test_mutated_documents_end_with_findings(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    texts = corpus()
    for number in range(300):
        text = mutated(random.Random(f"ci-{number}"), texts)
        try:
            check(text)
        except Broken as broken:
            (tmp_path / "broken.yaml").write_text(text, "utf-8", "surrogatepass")
            pytest.fail(f"document {number} in {tmp_path / 'broken.yaml'}: {broken.claim}")
