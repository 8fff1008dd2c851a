package startup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// newStart returns a command with flags of each type.
func newStart() *cobra.Command {
	root, start := &cobra.Command{Use: "runlevel-cluster"}, &cobra.Command{
		Use: "operator", Annotations: map[string]string{SkipsUnknownFlags: "true"},
	}
	root.AddCommand(start)
	flags := start.Flags()
	flags.String("config", "", "")
	flags.Bool("strict-tombstones", false, "")
	flags.Duration("lock-duration", 0, "")
	flags.String("wait-for", "upstream", "")
	flags.String("profile", os.Getenv("CLUSTER_PROFILE"), "")
	flags.String("exclude", os.Getenv("EXCLUDE_MANIFESTS"), "")
	return start
}

// TestFlagsOfAFile count unless the command line reports otherwise, and a wrong one is reported with its file and name.
func TestFlagsOfAFile(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		err  string
	}{
		"flags": {"strict-tombstones: true\nlock-duration: 45s\nwait-for: ready\n", ""},
		"empty": {"# nothing yet\n", ""},
		"a flag that isn't": {"strict-tombstone: true\n",
			`operator.yaml: unknown flag "strict-tombstone": see runlevel-cluster operator --help`},
		"a flag with more words": {"release-lock-duration: 45s\n",
			`operator.yaml: unknown flag "release-lock-duration": see `},
		"a flag of a newer program": {"strict-tombstones: true\nlock-duration: 45s\nshard-count: 3\nlock-pause: 1s\n", ""},
		"a wrong value":             {"lock-duration: long\n", `operator.yaml: lock-duration: `},
		"no YAML":                   {"{", `operator.yaml: write a line for each flag, as NAME: VALUE: `},
		"a flag twice":              {"wait-for: ready\nwait-for: upstream\n", `key "wait-for" already set`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "operator.yaml")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			command := newStart()
			flags := command.Flags()
			if err := flags.Parse([]string{"--wait-for=upstream", "--config=" + path}); err != nil {
				t.Fatal(err)
			}
			err := setFromFile(command, path)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			isNewer := strings.Contains(test.text, "shard-count")
			if unknown := UnknownFlags(flags); slices.Contains(unknown, "shard-count") != isNewer {
				t.Errorf("the unknown flags are %v", unknown)
			}
			expectFlags(t, flags, strings.Contains(test.text, "strict"))
		})
	}
	if err := setFromFile(newStart(), filepath.Join(t.TempDir(), "missing.yaml")); err != nil {
		t.Error("a missing file:", err)
	}
}

// TestOnlyTheOperatorSkipsUnknownFlags, since it reports them.
func TestOnlyTheOperatorSkipsUnknownFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machines.yaml")
	if err := os.WriteFile(path, []byte("shard-count: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := newStart()
	command.Annotations = nil
	if err := setFromFile(command, path); err == nil || !strings.Contains(err.Error(), `unknown flag "shard-count"`) {
		t.Errorf("another command starts: %v", err)
	}
}

// expectFlags compares flags with those of the first file of the test.
func expectFlags(t *testing.T, flags *pflag.FlagSet, isSet bool) {
	t.Helper()
	strict, _ := flags.GetBool("strict-tombstones")
	lock, _ := flags.GetDuration("lock-duration")
	standard, _ := flags.GetString("wait-for")
	if strict != isSet || (lock == 45*time.Second) != isSet || standard != "upstream" {
		t.Errorf("strict-tombstones is %t, lock-duration %s, wait-for %s", strict, lock, standard)
	}
}

// TestFlagValuesAreLogged: the report of "runlevel inspect" has the log, and nothing else that reports it.
func TestFlagValuesAreLogged(t *testing.T) {
	t.Setenv("CLUSTER_PROFILE", "of-the-environment")
	t.Setenv("EXCLUDE_MANIFESTS", "of-the-environment")
	path := filepath.Join(t.TempDir(), "operator.yaml")
	if err := os.WriteFile(path, []byte("profile: of-the-file\nwait-for: ready\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer klog.LogToStderr(true)
	command := newStart()
	flags := command.Flags()
	if err := errors.Join(flags.Parse([]string{"--wait-for=upstream"}), setFromFile(command, path)); err != nil {
		t.Fatal(err)
	}
	logFlags(flags)
	klog.Flush()
	for _, want := range []string{
		`the command line takes precedence over the file" flag="wait-for"`,
		` profile="of-the-file"`, ` exclude="of-the-environment"`, ` wait-for="upstream"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not have %s:\n%s", want, &log)
		}
	}
}
