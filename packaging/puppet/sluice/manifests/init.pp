# The policy of the firewall Sluice. sluice::policy is merged from all levels of Hiera:
# mappings and lists are joined, the lowest level first, and "--allow http" removes
# "allow http" from a list.
#
# @param policy what /etc/sluice/policy.yaml has, as data
# @param policy_file the file of the policy; files that it names are next to it
# @param confirm when a policy that Puppet did not confirm rolls back
# @param probe a shell command that tests what the host must reach over a new
#   connection: if it fails, the previous policy returns
# @param command the program, with options for all its commands
class sluice (
  Hash $policy,
  String $policy_file = '/etc/sluice/policy.yaml',
  String $confirm = '60s',
  Optional[String] $probe = undef,
  String $command = 'sluice',
) {
  sluice_policy { $policy_file:
    policy  => $policy,
    confirm => $confirm,
    probe   => $probe,
    command => $command,
  }
}
