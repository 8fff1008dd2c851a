# Runs a formula with stand-ins for the words of Homebrew: prints the archive of each platform, and fails if a file that
# the formula installs is missing.
#
#   ruby homebrew.rb FORMULA CONTENTS-OF-THE-ARCHIVE
class Folder
  def install(files)
    files = files.keys if files.is_a?(Hash)
    Array(files).each { |file| File.exist?(file) or abort "no file #{file}" }
    abort "no files" if Array(files).empty?
  end

  def install_symlink(_) = nil
end

class Formula
  class << self
    def version(text) = text == "0.1.0" || abort("version #{text}")
    def url(text) = puts("#{@platform.join(" ")} #{text}")
    def sha256(text) = text.length == 64 || abort("sha256 #{text}")
    %i[desc homepage license test].each { |word| define_method(word) { |*| nil } }

    %w[macos linux arm intel].each do |name|
      define_method("on_#{name}") do |&block|
        (@platform ||= []).push(name)
        block.call
        @platform.pop
      end
    end
  end

  %i[bin bash_completion zsh_completion fish_completion man1].each { |name| define_method(name) { Folder.new } }
end

load File.expand_path(ARGV[0])
Dir.chdir(ARGV[1])
Runlevel.new.install
