package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	modversion "golang.org/x/mod/module"
	modulezip "golang.org/x/mod/zip"
)

// TestGoInstallTakesTheModule: "go install PACKAGE@VERSION" refuses a module with such lines in its go.mod or such
// names of files.
func TestGoInstallTakesTheModule(t *testing.T) {
	file, err := modfile.Parse("go.mod", []byte(readFile(t, "go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Replace)+len(file.Exclude) > 0 {
		t.Errorf("go.mod has %d replace and %d exclude lines, so that \"go install %scmd/runlevel@latest\" fails: "+
			"require versions that need none, or use a nested module", len(file.Replace), len(file.Exclude), module)
	}
	files, err := modulezip.CheckDir(root) // an error names the invalid files, too, or says that bin is large
	for _, invalid := range files.Invalid {
		t.Error(invalid)
	}
	if len(files.Valid) == 0 {
		t.Error(err)
	}
}

// TestGoInstall installs the committed source as a version of the module. Nothing of ours is in the build cache under
// that version, so it takes minutes.
func TestGoInstall(t *testing.T) {
	if os.Getenv("RUNLEVEL_TEST_GO_INSTALL") == "" {
		t.Skip("set RUNLEVEL_TEST_GO_INSTALL=1 to install the module from a proxy, which takes minutes")
	}
	folder := t.TempDir()
	proxy := filepath.Join(folder, "proxy", module, "@v")
	if err := os.MkdirAll(proxy, 0o755); err != nil {
		t.Fatal(err)
	}
	version := modversion.Version{Path: strings.TrimSuffix(module, "/"), Version: "v0.1.0"}
	archive, err := os.Create(filepath.Join(proxy, version.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(folder, "source")
	if output, err := exec.Command("git", "clone", "--quiet", root, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if err := modulezip.CreateFromDir(archive, version, source); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		version.Version + ".mod":  readFile(t, "go.mod"),
		version.Version + ".info": `{"Version": "` + version.Version + `"}`,
		"list":                    version.Version + "\n",
	} {
		if err := os.WriteFile(filepath.Join(proxy, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	others, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	install := exec.Command("go", "install", version.Path+"/cmd/runlevel@latest")
	install.Dir = folder
	install.Env = append(os.Environ(), "GOBIN="+folder, "GOMODCACHE="+filepath.Join(folder, "modules"),
		"GOPROXY=file://"+filepath.Join(folder, "proxy")+",file://"+strings.TrimSpace(string(others))+"/cache/download",
		"GOSUMDB=off", "GOFLAGS=-trimpath -modcacherw")
	if output, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	output, err := exec.Command(filepath.Join(folder, "runlevel"), "--version").Output()
	if err != nil || string(output) != "runlevel v0.1.0\n" {
		t.Errorf("got %q, %v", output, err)
	}
}
