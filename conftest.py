"""How every test run behaves: the hypothesis profiles, garbage, and Ctrl-C.

`gate` is the default: the same examples on every machine and every run, nothing remembered between runs, so a red gate
is red for everyone. `full` (`ci/check --full`) looks further, and prints what reproduces a failure. `mutants`
(`ci/mutants`) tries the gate's examples and ends with the first that is red: nobody reads it, so it need not be small.
"""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

pytest.register_assert_rewrite(
    "tests.support"
)  # what tests share asserts as they do, without asserts in the product too

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so; every child that a test interrupts would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests stay to the end: no collection of garbage has to walk them, neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)  # of 700, a tenth of all the time went into looking for cycles


SLOW_MACHINE = [HealthCheck.too_slow]  # two busy cores say nothing about the code under test

settings.register_profile(
    "gate",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=SLOW_MACHINE,
)
settings.register_profile(
    "full",
    database=None,
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=SLOW_MACHINE,
)
settings.register_profile(
    "mutants", parent=settings.get_profile("gate"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("gate")  # pytest --hypothesis-profile=NAME overrides it
