#!/usr/bin/python3

DOCUMENTATION = r"""
module: sluice_policy
short_description: Apply a policy of the firewall Sluice
description:
  - Writes the text of a policy and applies it. Nothing is written if it is refused, as
    where somebody who is logged in over ssh could not come back.
  - What is applied rolls back unless C(sluice confirm) comes in time.
  - In check mode it reports what would change, and leaves no files.
options:
  text:
    description: The text of the policy.
    type: str
    required: true
  path:
    description: The file of the policy. Other files that it names are beside it.
    type: path
    default: /etc/sluice/policy.yaml
  confirm:
    description: How long it is tried, such as 60s.
    type: str
    default: 60s
  command:
    description: The program, with options that all its commands take.
    type: str
    default: sluice
"""

EXAMPLES = r"""
- sluice_policy:
    text: "{{ lookup('file', 'policy.yaml') }}"
  register: applied
- ansible.builtin.command: sluice confirm
  when: applied.pending
  vars:
    ansible_ssh_args: -o ControlMaster=no -o ControlPath=none
"""

RETURN = r"""
pending:
  description: Whether C(sluice confirm) is awaited.
  type: bool
  returned: always
plan:
  description: What C(sluice plan) says would change.
  type: str
  returned: always
"""

import json
import os
import shlex
import tempfile

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "text": {"type": "str", "required": True},
            "path": {"type": "path", "default": "/etc/sluice/policy.yaml"},
            "confirm": {"type": "str", "default": "60s"},
            "command": {"type": "str", "default": "sluice"},
        },
        supports_check_mode=True,
    )
    path, command = module.params["path"], shlex.split(module.params["command"])
    text = module.params["text"].rstrip("\n") + "\n"
    before = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = file.read()

    def sluice(*args):
        return module.run_command(command + list(args))

    def write(content):
        handle, name = tempfile.mkstemp(prefix=".policy-", suffix=".yaml", dir=os.path.dirname(path))
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(name, 0o644)
        return name

    # The running policy refers to lines by the name of the file, so an existing text is
    # planned under that name.
    new = path if text == before else write(text)
    try:
        status, plan, errors = sluice("plan", new)
        plan = plan.replace(new, path)
        # Status 1 can mean that something would change, or that it would be refused.
        if status > 1 or "\nrefused" in "\n" + plan + errors:
            module.fail_json(msg=(plan + errors).replace(new, path).strip())
        result = {"changed": status == 1 or text != before, "pending": False, "plan": plan if status else ""}
        if result["changed"]:
            result["diff"] = {"before": before or "", "after": text, "before_header": path, "after_header": path}
            if result["plan"]:
                result["diff"]["prepared"] = result["plan"]
        if module.check_mode or not result["changed"]:
            module.exit_json(**result)
        os.replace(new, path)
    finally:
        if new != path and os.path.exists(new):
            os.unlink(new)

    status, answer, errors = sluice("apply", path, "--confirm", module.params["confirm"], "--json")
    if status:
        if before is None:
            os.unlink(path)
        else:
            os.replace(write(before), path)
        module.fail_json(msg=errors.strip() or answer.strip())
    result["pending"] = not json.loads(answer).get("unchanged", False)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
