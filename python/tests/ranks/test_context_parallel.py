"""Attention over the ranks of a process group. For each number of ranks, one program runs the functions of
ranked_cases.py."""

import pytest
import ranked_cases
from run_ranks import run_on_ranks


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_have_the_bits_and_the_errors_of_one_process(ranks):
    cases = ranked_cases
    run_on_ranks("ranked_cases", ranks, *cases.ROWS, *cases.FORWARD, *cases.GRADIENTS, *cases.ERRORS)


def test_one_rank_is_one_process():
    run_on_ranks("ranked_cases", 1, *ranked_cases.ROWS, "attention")


@pytest.mark.parametrize("ranks", [2])
def test_models_of_transformers(ranks):
    run_on_ranks("ranked_cases", ranks, *ranked_cases.MODELS)


@pytest.mark.parametrize("death", ["leaves_before_the_call", "dies_in_the_call"])
def test_a_rank_that_dies_is_an_error_of_the_others(death):
    run_on_ranks("ranked_deaths", 3, death)
