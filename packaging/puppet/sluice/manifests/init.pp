# The policy of the firewall Sluice. All levels of Hiera say something of sluice::policy:
# mappings are joined, lists too, those of the lowest level first, and "--allow http" takes
# "allow http" out of a list.
#
# @param policy what /etc/sluice/policy.yaml has, as data
# @param policy_file the file of the policy; files that it names are beside it
# @param confirm when a policy that Puppet did not confirm rolls back
# @param probe a command of the shell that tries what the host has to reach over a new
#   connection: where it fails, what ran before runs again
# @param command the program, with options that all its commands take
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
