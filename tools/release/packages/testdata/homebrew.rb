# Runs a formula and its test with stand-ins for the words of Homebrew: prints the archive of each platform and the links,
# and fails if a file that the formula installs is missing.
#
#   ruby homebrew.rb FORMULA CONTENTS-OF-THE-ARCHIVE
require "pathname"
require "tmpdir"

class Folder
  def install(files)
    files = files.keys if files.is_a?(Hash)
    Array(files).each { |file| File.exist?(file) or abort "no file #{file}" }
    abort "no files" if Array(files).empty?
  end

  def install_symlink(links) = links.each { |file, name| puts "#{name} is a link to #{file}" }

  def to_s = Dir.pwd
end

# Homebrew's paths create the folders of the files that they write.
class Pathname
  def write(text)
    dirname.mkpath
    File.write(to_s, text)
  end
end

class Formula
  class << self
    attr_reader :check

    def version(text = nil) = text ? @version = text : @version
    def url(text) = puts("#{@platform.join(" ")} #{text}")
    def sha256(text) = text.length == 64 || abort("sha256 #{text}")
    def test(&block) = @check = block
    %i[desc homepage license].each { |word| define_method(word) { |*| nil } }

    %w[macos linux arm intel].each do |name|
      define_method("on_#{name}") do |&block|
        (@platform ||= []).push(name)
        block.call
        @platform.pop
      end
    end
  end

  %i[bin bash_completion zsh_completion fish_completion man1].each { |name| define_method(name) { Folder.new } }

  attr_accessor :testpath

  def version = self.class.version
  def shell_output(command) = `cd #{testpath} && #{command}`
  def assert_match(text, output) = output.include?(text) || abort("no #{text} in #{output}")
end

load File.expand_path(ARGV[0])
Dir.chdir(ARGV[1])
formula = Runlevel.new
formula.install
Dir.mktmpdir do |folder|
  formula.testpath = Pathname(folder)
  formula.instance_eval(&Runlevel.check)
end
puts "the test has passed"
