"""Where Harbor means something else by a task folder than the contract does (`spec.dialect`).

Guarantee: every difference is a field of `Rules`, and whoever acts on one reads it from there. What is not here is
the same in both dialects.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfold.contract.failures import Effect


@dataclass(frozen=True)
class Rules:
    """What a folder means.

    `unrewarded`: what a missing, an invalid and a late reward count as. `late_reward_stands`: a reward that was
    written before test.sh ran past its limit. `sums_components`: without a key `reward` the score is the sum; else
    there is none, and the values are kept. `empties_tests`: /tests and /logs/verifier are emptied before a
    single-step verification; else only the two reward files are removed. `through_bash`: `bash /tests/test.sh`; else
    the file is executed itself. `gym_extras`: Python verifiers, reference answers and dataset.toml's [gym].
    `verifier_is_root`: who test.sh runs as when nothing names a user, the image is not on record and `[agent].user`
    is set; else the image's own user. `every_table_restricts`: [environment], [agent] and [verifier.environment] may
    restrict the network too; else only the [verifier] table of a separate verifier.
    """

    unrewarded: Effect
    late_reward_stands: bool
    sums_components: bool
    empties_tests: bool
    through_bash: bool
    gym_extras: bool
    verifier_is_root: bool
    every_table_restricts: bool


GYM = Rules(
    unrewarded=Effect.COUNTED,
    late_reward_stands=True,
    sums_components=True,
    empties_tests=True,
    through_bash=True,
    gym_extras=True,
    verifier_is_root=True,
    every_table_restricts=False,
)
HARBOR = Rules(
    unrewarded=Effect.MASKED,
    late_reward_stands=False,
    sums_components=False,
    empties_tests=False,
    through_bash=False,
    gym_extras=False,
    verifier_is_root=False,
    every_table_restricts=True,
)

RULES = {"gym": GYM, "harbor": HARBOR}
"""By the words of `spec.dialect`."""
