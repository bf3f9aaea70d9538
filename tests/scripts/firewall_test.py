"""configure-scripts/lib/soft_roce_checks.sh: what it makes of a firewall's rules. The script as a whole is tested in a virtual
machine (mpi-tests/soft-roce/setup_script.py)."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import unittest

from rulesets import RULESETS

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUNCTIONS = f'set -euo pipefail; mend_root="{ROOT}"; . "$mend_root/configure-scripts/lib/soft_roce_checks.sh"; '


def run(command: str, text: str) -> str:
    return subprocess.run(["bash", "-c", FUNCTIONS + command], input=text, capture_output=True, text=True, timeout=60,
                          check=True).stdout.strip()


class Firewall(unittest.TestCase):
    def test_verdicts(self) -> None:
        for name, rules in RULESETS.items():
            with self.subTest(name):
                self.assertEqual(run("firewall_verdict eth1", rules.text), rules.verdict)

    def test_verdicts_with_the_other_awks(self) -> None:
        """Debian's is mawk; whoever installs gawk gets that one."""
        program = str(ROOT / "configure-scripts/lib/firewall.awk")
        for awk in (["mawk"], ["gawk"], ["gawk", "--posix"], ["busybox", "awk"]):
            for name, rules in RULESETS.items() if shutil.which(awk[0]) else ():
                with self.subTest(name, awk=awk):
                    done = subprocess.run([*awk, "-v", "netdev=eth1", "-f", program], input=rules.text, capture_output=True,
                                          text=True, timeout=60, check=True)
                    self.assertEqual(done.stdout.strip(), rules.verdict)

    def test_rules_of_both_programs_count(self) -> None:
        both = RULESETS["accept"].text + RULESETS["iptables final DROP"].text
        self.assertEqual(run("firewall_verdict eth1", both), RULESETS["iptables final DROP"].verdict)

    def test_an_unknown_interface_is_unsure(self) -> None:
        self.assertEqual(run("firewall_verdict ''", RULESETS["the interface is trusted"].text), "unsure")

    def test_remedies(self) -> None:
        for name, rules in RULESETS.items():
            if rules.remedy:
                with self.subTest(name):
                    said = run('rules=$(cat); read -r _ chain < <(firewall_verdict eth1 <<<"$rules") || true; '
                               'firewall_remedy "$rules" $chain', rules.text)
                    self.assertTrue(said.startswith(rules.remedy), said)


if __name__ == "__main__":
    unittest.main()
