package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestPagesWithSandbox runs the commands of the sections that begin with a sandbox, as a reader would in a clone.
func TestPagesWithSandbox(t *testing.T) {
	for _, program := range []string{"kubectl", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	for page, then := range map[string]string{ // commands that check the effects that the page promises
		"control-plane-cluster-api.md": `sleep 1; kubectl wait rcp/shop --for=condition=RollingOut=False --timeout=2m; kubectl wait rcp/shop --for=jsonpath='{.status.upToDateReplicas}'=3 --timeout=1m`,
		"hooks.md":                     `runlevel status --name bookshop`,
		"in-place.md":                  `kubectl wait $(kubectl get machines.cluster.x-k8s.io -o jsonpath='{range .items[*]}node/{.status.nodeRef.name} {end}') --for=jsonpath='{.status.nodeInfo.kubeletVersion}'=v1.36.0 --timeout=2m`,
		"providers.md":                 `kubectl wait externalmachine/web-4 -n shop-machines --for=condition=Ready=False --timeout=2m`,
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			if page != "hooks.md" {
				sandboxtest.SkipUnlessThorough(t)
			}
			tryOnSandbox(t, sandboxCommands(t, page)+then)
		})
	}
}

// sandboxCommands returns the commands of the section of a page in which a sandbox is started.
func sandboxCommands(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(string(text), -1) {
		var commands strings.Builder
		for _, block := range shellBlock.FindAllStringSubmatch(section, -1) {
			commands.WriteString(block[1])
		}
		if strings.Contains(commands.String(), "runlevel sandbox up --detach") {
			return commands.String()
		}
	}
	t.Fatalf("docs/%s starts no sandbox", page)
	return ""
}

// tryOnSandbox runs commands with their own sandbox, in a folder with the files of a clone that they use.
func tryOnSandbox(t *testing.T, commands string) {
	t.Helper()
	name := "docs-" + rand.String(5)
	t.Cleanup(func() { _ = sandbox.Down(context.Background(), name) })
	programs := filepath.Dir(sandboxtest.Program(t, "runlevel"))
	sandboxtest.Program(t, "runlevel-cluster")
	commands = strings.NewReplacer(
		"make build\n", "", // the test has built the programs
		"sandbox up --detach", "sandbox up --detach --name "+name,
		"sandbox kubeconfig", "sandbox kubeconfig --name "+name,
		"runlevel sandbox down\n", "", // the command ends a sandbox by another name
		"machines -w", "machines", // a watch would not end
		"127.0.0.1:9443", freeAddress(t),
		"&\n", "& started=\"$started $!\"\n",
	).Replace(strings.ReplaceAll(commands, "bin/runlevel", "runlevel"))

	folder := t.TempDir()
	for _, used := range []string{"manifests", "examples"} {
		target, err := filepath.Abs(filepath.Join("../..", used))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(folder, used)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-e", "-c",
		"trap 'test -z \"$started\" || kill $started || true' EXIT\n"+commands)
	shell.Dir, shell.WaitDelay = folder, 10*time.Second
	shell.Env = append(os.Environ(), fmt.Sprintf("PATH=%s%c%s", programs, os.PathListSeparator, os.Getenv("PATH")))
	if output, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// freeAddress returns an address of the loopback at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
