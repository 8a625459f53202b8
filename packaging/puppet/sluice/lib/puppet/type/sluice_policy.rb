require 'digest'
require 'fileutils'
require 'json'
require 'open3'
require 'shellwords'
require 'tmpdir'
require 'yaml'

Puppet::Type.newtype(:sluice_policy) do
  @doc = 'A policy of the firewall Sluice. What would change is logged as "sluice plan" says it,
    with --noop too. One that Sluice refuses, as where somebody who is logged in over ssh could
    not come back, fails the resource; the file and the rules stay as they were.'

  newparam(:path, namevar: true) do
    desc 'The file of the policy. Other files that it names are next to it.'
    validate { |value| raise ArgumentError, 'a path begins with /' unless value.start_with?('/') }
  end

  newparam(:confirm) do
    desc 'When a policy rolls back that Puppet did not confirm.'
    defaultto '60s'
  end

  newparam(:probe) do
    desc 'A shell command that must succeed before the policy is confirmed.'
  end

  newparam(:command) do
    desc 'The program, with options for all its commands.'
    defaultto 'sluice'
  end

  newproperty(:policy) do
    desc 'The content of the file, as data. "--X" in a list removes X, from whichever level of Hiera it came.'
    validate { |value| raise ArgumentError, 'a policy is a hash' unless value.is_a?(Hash) }

    def retrieve
      File.file?(file) ? File.read(file, encoding: 'UTF-8') : :absent
    end

    # The running policy refers to lines by the name of the file, so an existing text is
    # planned under that name.
    def insync?(is)
      same = is == text
      name = same ? file : write(text)
      plan, errors, status = sluice('plan', name)
      plan, errors = [plan, errors].map { |said| said.gsub(name, file) }
      # Status 1 can mean that something would change, or that it would be refused.
      raise Puppet::Error, (plan + errors).strip if status > 1 || "#{plan}#{errors}".match?(/^refused/)

      return true if same && status.zero?

      notice(status.zero? ? 'the text changes, and no rule' : plan.chomp)
      false
    ensure
      File.unlink(name) if name && !same
    end

    def sync
      before = retrieve
      FileUtils.mkdir_p(File.dirname(file))
      FileUtils.mv(write(text), file)
      answer, errors, status = sluice('apply', file, '--confirm', resource[:confirm], '--json')
      give_back(before, errors.empty? ? answer : errors) unless status.zero?
      return if JSON.parse(answer)['unchanged']

      if resource[:probe]
        said, probed = Open3.capture2e('sh', '-c', resource[:probe])
        unless probed.success?
          answer, errors, status = sluice('rollback')
          said += "and not taken back at once: #{answer}#{errors}" unless status.zero?
          give_back(before, "not confirmed, since the probe failed: #{said}")
        end
      end
      answer, errors, status = sluice('confirm')
      raise Puppet::Error, (answer + errors).strip unless status.zero?
    end

    def change_to_s(_from, _to)
      'applied'
    end

    def is_to_s(value)
      value == :absent ? 'none' : should_to_s(value)
    end

    def should_to_s(value)
      "{sha256}#{Digest::SHA256.hexdigest(value.is_a?(Hash) ? text : value)[0, 12]}"
    end

    private

    def file
      resource[:path]
    end

    # Through JSON, which has no aliases.
    def text
      "# Puppet writes this file.\n" + YAML.dump(JSON.parse(JSON.generate(joined(should))), line_width: -1)
    end

    # Hiera's own knockout_prefix only reaches the next level.
    def joined(value)
      case value
      when Hash then value.transform_values { |inner| joined(inner) }
      when Array
        out, kept = value.partition { |entry| entry.to_s.start_with?('--') }
        kept.reject { |entry| out.include?("--#{entry}") }.map { |entry| joined(entry) }
      else value
      end
    end

    def write(content)
      dir = File.dirname(file)
      name = File.join(File.directory?(dir) ? dir : Dir.tmpdir, ".policy-#{Process.pid}-#{rand(1 << 32)}.yaml")
      File.open(name, File::WRONLY | File::CREAT | File::EXCL, 0o644) { |out| out.write(content) }
      name
    end

    def give_back(before, why)
      before == :absent ? File.unlink(file) : FileUtils.mv(write(before), file)
      raise Puppet::Error, why.strip
    end

    def sluice(*args)
      out, errors, status = Open3.capture3(*Shellwords.split(resource[:command]), *args)
      [out, errors, status.exitstatus || 255]
    end
  end
end
