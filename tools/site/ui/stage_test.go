package ui

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/tools/site/browser"
)

var cluster = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// A stage is a tab of Chromium on the pages of "runlevel ui".
type stage struct {
	*browser.Tab
	program string // runlevel
	site    string // URL of the pages, without a slash at its end
	first   string // the address that it prints
	process *os.Process
}

// newStage starts "runlevel ui" and Chromium.
func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{Tab: browser.Start(t, "../node_modules"), program: sandboxtest.Program(t, "runlevel")}
	s.first = s.serve(t)
	s.site = strings.TrimSuffix(regexp.MustCompile(`^http://[^/]+`).FindString(s.first), "/")
	s.Open(t, s.first, 1440)
	return s
}

// serve starts "runlevel ui", and returns the address that it prints.
func (s *stage) serve(t testing.TB) string {
	t.Helper()
	command := exec.Command(s.program, "ui", "--no-open", "--kubeconfig", cluster.Sandbox(t).Kubeconfig)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = command.Process
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	})
	var printed strings.Builder
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if address := regexp.MustCompile(`http://\S+`).FindString(lines.Text()); address != "" {
			return address
		}
		printed.WriteString(lines.Text() + "\n")
	}
	t.Fatalf("runlevel ui prints no address:\n%s", printed.String())
	return ""
}

// A release is a name, which is also that of its namespace, and its files: an archive with the words NS and VERSION.
type release struct{ name, files string }

// folder writes a version of a release, and returns its folder.
func (r release) folder(t testing.TB, version string) string {
	t.Helper()
	folder := t.TempDir()
	text := strings.NewReplacer("NS", r.name, "VERSION", version).Replace(r.files)
	for _, file := range txtar.Parse([]byte(text)).Files {
		if err := os.WriteFile(filepath.Join(folder, file.Name), file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// start starts to apply a version of a release.
func (s *stage) start(t testing.TB, r release, version string, flags ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(s.program, append([]string{"apply", r.folder(t, version), "--name", r.name,
		"--release-version", version, "--kubeconfig", cluster.Sandbox(t).Kubeconfig}, flags...)...)
	command.Stdout = &bytes.Buffer{}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command
}

// apply applies a version of a release. An apply that fails is reported, unless it should.
func (s *stage) apply(t testing.TB, r release, version string, flags ...string) {
	t.Helper()
	command := s.start(t, r, version, flags...)
	if err := command.Wait(); err != nil {
		t.Fatalf("apply %s %s: %v\n%s", r.name, version, err, command.Stdout)
	}
}

// path returns the address of a page on a release.
func (r release) path(view string) string {
	return "/releases/" + session.DefaultNamespace + "/" + r.name + view
}

// open opens a page.
func (s *stage) open(t testing.TB, path string) {
	t.Helper()
	s.Open(t, s.site+path, 1440)
}

// sees waits until the page has a text, as a user sees it.
func (s *stage) sees(t testing.TB, pattern string) {
	t.Helper()
	s.Await(t, fmt.Sprintf("RegExp(%q).test(document.querySelector('main').innerText)", pattern))
}

// stay marks the document, and stayed reports whether it was loaded again since.
func (s *stage) stay(t testing.TB) {
	t.Helper()
	s.Do(t, chromedp.Evaluate[chromedp.Void]("window.marked = true"))
}

func (s *stage) stayed(t testing.TB) {
	t.Helper()
	if !browser.Read(t, s.Tab, chromedp.Evaluate[bool]("window.marked === true")) {
		t.Error("the page was loaded again")
	}
}

// isQuiet reports errors of the console and dialogs.
func (s *stage) isQuiet(t *testing.T) {
	t.Helper()
	for _, problem := range s.Problems() {
		t.Error("console:", problem)
	}
}

// endJob ends the pod of a Job.
func endJob(t testing.TB, r release, job string, exitCode int) {
	t.Helper()
	pods := cluster.Client(t).CoreV1().Pods(r.name)
	var name string
	sandboxtest.Eventually(t, "the pod of Job "+job+" runs", func(ctx context.Context) bool {
		found, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + job,
			FieldSelector: "status.phase=Running"})
		if err != nil || len(found.Items) == 0 {
			return false
		}
		name = found.Items[0].Name
		return true
	})
	cluster.EndPod(t, r.name, name, exitCode)
}

// run runs the program, and returns its output. Problems that it finds are no failure.
func (s *stage) run(t testing.TB, args ...string) []byte {
	t.Helper()
	command := exec.Command(s.program, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.Sandbox(t).Kubeconfig)
	output, err := command.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.ExitCode() == 2 {
		t.Fatalf("runlevel %s: %v\n%s", strings.Join(args, " "), err, failed.Stderr)
	}
	return output
}
