# Homebrew's formula of the runlevel command: the file Formula/runlevel.rb of a tap.
class Runlevel < Formula
  desc "Install and update Kubernetes components as one versioned release"
  homepage "https://github.com/runlevel/runlevel"
  version "{{.Number}}"
  license "Apache-2.0"
{{with .On "darwin"}}
  on_macos do
{{- range .}}
    on_{{if eq .Arch "arm64"}}arm{{else}}intel{{end}} do
      url "{{$.Downloads}}/{{.File}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end
{{end}}{{with .On "linux"}}
  on_linux do
{{- range .}}
    on_{{if eq .Arch "arm64"}}arm{{else}}intel{{end}} do
      url "{{$.Downloads}}/{{.File}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "runlevel"
    bin.install_symlink "runlevel" => "kubectl-runlevel"
    bash_completion.install "completions/runlevel.bash" => "runlevel"
    zsh_completion.install "completions/_runlevel" => "_runlevel"
    fish_completion.install "completions/runlevel.fish"
    man1.install Dir["man/man1/*.1"]
  end

  test do
    assert_match "runlevel v#{version}", shell_output("#{bin}/runlevel --version")
    (testpath/"release/0000_10_shop_settings.yaml").write <<~YAML
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: settings, namespace: default}
    YAML
    assert_match "settings", shell_output("#{bin}/runlevel render release")
  end
end
