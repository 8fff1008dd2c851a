package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// secretValue is in all Secrets of TestLogsShowNoSecret: in clear, in base64, and in annotations.
const secretValue = "planted-value"

// TestLogsShowNoSecret runs the verbs that read and write Secrets, at every verbosity that
// client-go knows, and looks for the values of the Secrets in all output.
func TestLogsShowNoSecret(t *testing.T) {
	t.Setenv("KUBECONFIG", shared.Sandbox(t).Kubeconfig)
	for verbosity := 4; verbosity <= 10; verbosity++ {
		name, folder := fmt.Sprintf("logs-%d", verbosity), t.TempDir()
		for _, item := range []string{"created", "adopted"} {
			manifest := fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %s-%s, namespace: default, annotations: {example.com/copy: %s}}, stringData: {a: %[3]s}, data: {b: %[4]s}}`,
				name, item, secretValue, base64.StdEncoding.EncodeToString([]byte(secretValue)))
			if err := os.WriteFile(filepath.Join(folder, "0000_10_shop_"+item+".yaml"), []byte(manifest),
				0o644); err != nil {
				t.Fatal(err)
			}
		}
		theirs := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-adopted"},
			StringData: map[string]string{"old": "other-" + secretValue},
		}
		if _, err := shared.Client(t).CoreV1().Secrets("default").Create(t.Context(), theirs,
			metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
			t.Fatal(err)
		}
		flags := []string{"--name", name, "-v", fmt.Sprint(verbosity)}
		for _, verb := range [][]string{
			{"gate", folder}, {"diff", folder}, {"plan", "--cluster", folder}, {"apply", folder, "--dry-run=server"},
			{"apply", folder}, {"diff", folder, "--all"},
			{"why", "secret/" + name + "-adopted", "-n", "default", folder}, {"history"}, {"deletes"},
		} {
			command := exec.CommandContext(t.Context(), "runlevel", append(verb, flags...)...)
			if verb[0] == "history" || verb[0] == "deletes" {
				command.Args = append([]string{"runlevel", verb[0]}, flags...)
			}
			output, err := command.CombinedOutput()
			if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
				t.Fatal(err)
			}
			showsNoSecret(t, command.Args, string(output))
		}
		args := append([]string{"apply", folder, "--watch"}, flags...)
		showsNoSecret(t, args, watchedRepair(t, name+"-created", args))
	}
}

// setSecret sets a value in a Secret as another field manager.
func setSecret(t *testing.T, name string) {
	t.Helper()
	patch := fmt.Sprintf(`{"data":{"a":"%s"}}`, base64.StdEncoding.EncodeToString([]byte("other-"+secretValue)))
	_, err := shared.Client(t).CoreV1().Secrets("default").Patch(t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "other-manager"})
	if err != nil {
		t.Fatal(err)
	}
}

// watchedRepair runs "runlevel apply --watch" until it has repaired a Secret, and returns its output.
func watchedRepair(t *testing.T, name string, args []string) string {
	command := exec.CommandContext(t.Context(), "runlevel", args...)
	var out bytes.Buffer
	command.Stdout = &out
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var response strings.Builder
	for lines := bufio.NewReader(stderr); ; {
		line, err := lines.ReadString('\n')
		response.WriteString(line)
		if strings.HasPrefix(line, "keeping ") {
			setSecret(t, name)
		}
		if strings.HasPrefix(line, "repaired ") {
			_ = command.Process.Signal(syscall.SIGINT)
		}
		if err == io.EOF {
			break
		}
	}
	if err := command.Wait(); err != nil || !strings.Contains(response.String(), "\nrepaired ") {
		t.Errorf("%v: got error %v, want \"repaired\" in:\n%s", args, err, response.String())
	}
	return out.String() + response.String()
}

// showsNoSecret looks for the values of Secrets in the output of a command.
func showsNoSecret(t *testing.T, args []string, output string) {
	t.Helper()
	if output == "" {
		t.Errorf("%v: got no output", args)
	}
	plain := []byte(secretValue)
	for _, form := range []string{secretValue, base64.StdEncoding.EncodeToString(plain),
		base64.StdEncoding.EncodeToString([]byte("other-" + secretValue)), hex.EncodeToString(plain)} {
		if offset := strings.Index(output, form); offset >= 0 {
			t.Errorf("%v shows %q: …%s…", args, form, output[max(0, offset-200):min(len(output), offset+len(form)+50)])
		}
	}
}

// TestLogsShowNoCredentials talks to a cluster with a token, and with a password in the URL, at
// the highest verbosity.
func TestLogsShowNoCredentials(t *testing.T) {
	account := shared.Account(t, "default", "logs",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: account.Host, CertificateAuthorityData: account.CAData}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: account.BearerToken}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	for _, server := range []string{account.Host,
		strings.Replace(account.Host, "https://", "https://me:"+secretValue+"@", 1),
		"https://me:" + secretValue + "@127.0.0.1:1"} {
		config.Clusters["it"].Server = server
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
		args := []string{"history", "--record-namespace", "default", "--kubeconfig", file, "-v", "10"}
		output, _ := exec.CommandContext(t.Context(), "runlevel", args...).CombinedOutput()
		showsNoSecret(t, args, string(output))
		if strings.Contains(string(output), account.BearerToken) {
			t.Errorf("%v shows the token", args)
		}
	}
}
