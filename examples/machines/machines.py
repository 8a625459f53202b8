#!/usr/bin/env python3
"""A control plane of 50 machines, on the REST API of a fleet's controller and nothing else.

It creates them on the hosts that it is given, moves every second one to the next host, deletes
all, and proves each time who reaches whom: by what the controller says is proved on the hosts
concerned, and by packets. Two commands are yours: ATTACH plugs a machine into a host ("" unplugs
it), TRY sends a packet from one to another and ends with 0 where it is answered.

    machines.py https://controller.example.net:8443 --ca ca.pem --token-file token \\
        --hosts hv-1,hv-2 --attach ./attach --try ./try
"""

import argparse
import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

PATIENCE = 120  # seconds until what is told is proved


class Controller:
    def __init__(self, url, ca, token):
        self.url, self.token = url, token
        self.tls = ssl.create_default_context(cafile=ca)
        self.tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # ca.pem is the fleet's intermediate

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + "/api/v1" + path, data, method=method)
        request.add_header("Authorization", "Bearer " + self.token)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, context=self.tls) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as err:
            raise SystemExit(f"{method} {path}: {err.code} {err.read().decode()}")


class Plane:
    def __init__(self, controller, hosts, attach, tries):
        self.controller, self.hosts, self.attach, self.tries = controller, hosts, attach, tries
        self.machines = {}  # by name: host and role

    def address(self, name):
        return "10.30.0." + name.removeprefix("vm-")

    def place(self, name, host, role):
        """Plugs a machine into a host and tells the controller; the same call moves it."""
        subprocess.run([self.attach, name, self.address(name), host], check=True)
        self.controller.ask("PUT", "/guests/" + name, {
            "host": host, "interface": name, "addresses": [self.address(name)], "labels": {"app": role},
        })
        self.machines[name] = (host, role)

    def delete(self, name):
        self.controller.ask("DELETE", "/guests/" + name)
        subprocess.run([self.attach, name, self.address(name), ""], check=True)
        del self.machines[name]

    def proved(self):
        """Waits until all hosts concerned have proved what they were told of all machines."""
        end = time.monotonic() + PATIENCE
        while True:
            guests = self.controller.ask("GET", "/guests")["guests"]
            waiting = [g for g in guests if not g["proved"]]
            if len(guests) == len(self.machines) and not waiting:
                return
            if time.monotonic() > end:
                raise SystemExit(f"not proved: {waiting[:3]}")
            time.sleep(0.2)

    def reach(self, step):
        """The policy lets web reach db: by packets, between some of each, on both hosts."""
        self.proved()
        names = sorted(self.machines)
        some = names[:3] + names[-3:]
        for source in some:
            for target in some:
                if source == target:
                    continue
                want = (self.machines[source][1], self.machines[target][1]) == ("web", "db")
                done = subprocess.run([self.tries, source, self.address(target)], stdout=subprocess.DEVNULL)
                if (done.returncode == 0) != want:
                    raise SystemExit(f"{step}: {source} {self.machines[source]} to {target} {self.machines[target]}: want {want}")
        print(f"{step}: {len(names)} machines are proved, and reach whom they should", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("controller")
    options.add_argument("--machines", type=int, default=50)
    for name in ("ca", "token-file", "hosts", "attach", "try"):
        options.add_argument("--" + name, required=True)
    o = vars(options.parse_args())
    with open(o["token_file"]) as file:
        controller = Controller(o["controller"], o["ca"], file.read().strip())
    hosts = o["hosts"].split(",")
    plane = Plane(controller, hosts, o["attach"], o["try"])
    names = [f"vm-{n}" for n in range(100, 100 + o["machines"])]
    for n, name in enumerate(names):
        plane.place(name, hosts[n % len(hosts)], ("web", "db")[n // 2 % 2])
    plane.reach("created")
    for n, name in enumerate(names[::2]):
        host, role = plane.machines[name]
        plane.place(name, hosts[(hosts.index(host) + 1) % len(hosts)], role)
    plane.reach("moved")
    for name in names[:3]:
        plane.place(name, plane.machines[name][0], "other")
    plane.reach("with other labels")
    for name in names:
        plane.delete(name)
    plane.proved()
    print("deleted", flush=True)


if __name__ == "__main__":
    sys.exit(main())
