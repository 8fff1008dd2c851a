package runtimehooktest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// StartProcess runs an extension as a process of its own until the test ends, and returns the configuration of its
// clients. The command gets the flags of package extensionserver, and must log its address.
func StartProcess(t testing.TB, command *exec.Cmd) runtimev1.ClientConfig {
	t.Helper()
	folder := t.TempDir()
	ca := WriteCertificate(t, folder)
	command.Args = append(command.Args, "--listen=127.0.0.1:0", "--cert-file="+filepath.Join(folder, "tls.crt"),
		"--key-file="+filepath.Join(folder, "tls.key"))
	stderr, err := command.StderrPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return runtimev1.ClientConfig{URL: "https://" + awaitAddress(t, bufio.NewScanner(stderr)), CABundle: ca}
}

// WriteCertificate writes a certificate for 127.0.0.1 and its key into a folder, as tls.crt and tls.key, and returns
// that of its authority.
func WriteCertificate(t testing.TB, folder string) []byte {
	t.Helper()
	issued := issueCertificate(t)
	for name, text := range map[string][]byte{"tls.crt": issued.cert, "tls.key": issued.key} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return issued.ca
}

// awaitAddress reads the log of an extension up to its address, and returns that. Later lines go to the test's standard
// error.
func awaitAddress(t testing.TB, stderr *bufio.Scanner) string {
	t.Helper()
	listens := regexp.MustCompile(` at (\S+:\d+)$`)
	for stderr.Scan() {
		if found := listens.FindStringSubmatch(stderr.Text()); found != nil {
			go func() {
				for stderr.Scan() {
					_, _ = os.Stderr.WriteString(stderr.Text() + "\n")
				}
			}()
			return found[1]
		}
		t.Log(stderr.Text())
	}
	t.Fatalf("the extension has ended: %v", stderr.Err())
	return ""
}
