"""A fail2ban action that bans with Sluice: thousands in one command if many come at
once, as when fail2ban restores its bans.

    action = sluice.py[command="sluice"]

The bans belong to Sluice and end in the kernel, so they stay in force while fail2ban is down.
The command may name a network namespace, or be "sluice-controller" for all hosts of a fleet;
hosts is then a selector of some of them:

    action = sluice.py[command="sluice-controller", hosts="env=prod"]
"""

import json
import shlex
import subprocess
import threading
import time

from fail2ban.server.action import ActionBase

AGAIN = 10  # seconds until a failure is retried
TOGETHER = 10000  # lines for one command at most
LONGEST = 3650 * 86400  # seconds, the longest temporary ban
TIMEOUT = 120  # seconds that a command may take


class SluiceAction(ActionBase):
    _prolongable = True  # the kernel keeps bans that fail2ban extends

    def __init__(self, jail, name, command="sluice", hosts="", reason="fail2ban"):
        super().__init__(jail, name)
        self.program, *self.options = shlex.split(command)
        self.hosts = ["--hosts", hosts] if hosts else []
        self.reason = "%s: %s" % (reason, jail.name)
        self.banEpoch = 0
        # What to do, by address, the latest wins: None to lift the ban, otherwise when it
        # ends, with None in it if it does not.
        self.wanted = {}
        self.changed = threading.Condition()
        self.ending = False
        self.worker = None

    def start(self):
        self.ending = False
        self.worker = threading.Thread(target=self.work, daemon=True)
        self.worker.start()

    def stop(self):
        """Ends when what was asked before is done. The bans stay."""
        with self.changed:
            self.ending = True
            self.changed.notify()
        self.worker.join(TIMEOUT)

    def ban(self, aInfo):
        seconds = aInfo["bantime"]
        self.want(aInfo["fid"], (None if seconds < 0 else aInfo["time"] + seconds,))

    def prolong(self, aInfo):
        self.ban(aInfo)

    def unban(self, aInfo):
        if not self._jail.actions.active:
            return  # fail2ban ends, or the jail
        seconds = aInfo["bantime"]
        if seconds >= 0 and aInfo["time"] + seconds <= time.time():
            return  # the kernel ends it
        self.want(aInfo["fid"], None)

    def consistencyCheck(self, _beforeRepair=None):
        """fail2ban calls this when it hears of an address that should be banned. That one
        is then banned again."""
        self._jail.actions.banEpoch += 1
        self.banEpoch = self._jail.actions.banEpoch

    def want(self, address, what):
        with self.changed:
            self.wanted[str(address)] = what
            self.changed.notify()

    def work(self):
        while True:
            with self.changed:
                while not self.wanted and not self.ending:
                    self.changed.wait()
                some = dict(list(self.wanted.items())[:TOGETHER])
                if not some:
                    return
                for address in some:
                    del self.wanted[address]
            try:
                self.lift([a for a, w in some.items() if w is None])
                self.add({a: w[0] for a, w in some.items() if w is not None})
            except (OSError, subprocess.SubprocessError, ValueError) as e:
                self._logSys.error("[%s] %s, tried again in %d s: %s", self._jail.name, self.program, AGAIN, e)
                with self.changed:
                    self.wanted = {**some, **self.wanted}
                    if self.ending:
                        return
                    self.changed.wait_for(lambda: self.ending, AGAIN)

    def add(self, bans):
        lines = []
        for address, end in bans.items():
            left = 0 if end is None else min(int(end - time.time()) + 1, LONGEST)
            if left >= 0:
                lines.append("%s %s%s" % (address, "for %ds " % left if left else "", self.reason))
        self.run(lines, "ban", "--keep-longer")

    def lift(self, addresses):
        """Lifts only what this jail banned: another ban may have taken its place."""
        if not addresses:
            return
        listed = subprocess.run([self.program, "bans", "--json", *self.options], timeout=TIMEOUT, check=True, capture_output=True, text=True)
        own = {b["what"] for b in json.loads(listed.stdout) if b.get("reason") == self.reason}
        self.run([a for a in addresses if a in own], "unban", "--message", self.reason)

    def run(self, lines, *args):
        if not lines:
            return
        done = subprocess.run([self.program, args[0], "-", *args[1:], *self.hosts, *self.options], input="\n".join(lines), timeout=TIMEOUT, capture_output=True, text=True)
        if done.returncode == 1:  # some of it is never banned
            self._logSys.warning("[%s] %s", self._jail.name, (done.stderr + done.stdout).strip())
        elif done.returncode:
            raise OSError(done.stderr.strip() or "status %d" % done.returncode)


Action = SluiceAction
