package deletion_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// TestTranscripts runs the scripts of testdata/*.txtar, each with its transcript behind it. A line is
//
//	given node NAME [control plane], no node    with which each script begins
//	pre-drain NAME OWNER, pre-terminate NAME OWNER, remove NAME       hooks
//	pod NAME [refused] [ends 3s | never ends], allow NAME             pods
//	excluded, node gone, others cordoned [NAME ...]
//	infrastructure goes 40s | never goes | gone, problem [7s] WORDS, no problem, finalizers [NAME ...]
//	pass        the adapter looks, and does steps until one waits
//	resync      two passes that show nothing new
//	wait 5s     time passes, and the adapter looks as often as it was told to
//	restart     the adapter forgets what it did not record
//
// and in Cluster API's dialect, which "cluster-api" chooses behind the node,
//
//	cluster deleting, no control plane left, bootstrap KIND, attached [VOLUME ...]
//	drain timeout 60s, volume timeout 60s, node timeout 10s, node deletion refused
func TestTranscripts(t *testing.T) {
	transcript.Each(t, "testdata/*.txtar", func(t *testing.T, file *transcript.Transcript) {
		file.ExpectScripts(t, func(text string) string { return play(t, text) })
	})
}

// A script is one that runs.
type script struct {
	*testing.T
	*world
	out  bytes.Buffer
	last deletion.DeletionStep
}

// play runs a script, and returns its transcript.
func play(t *testing.T, text string) string {
	s := &script{T: t, world: newWorld("")}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fmt.Fprintln(&s.out, line)
		s.command(line)
	}
	if s.released {
		fmt.Fprintln(&s.out, "released")
	}
	return s.out.String()
}

// command does one line of a script.
func (s *script) command(line string) {
	words := strings.Fields(line)
	switch command, rest := words[0], words[1:]; command {
	case "cluster-api", "cluster", "drain", "volume", "attached", "bootstrap":
		s.setClusterAPI(line, rest)
	case "given", "no", "others", "node", "excluded":
		s.setNode(line, rest)
	case "pre-drain":
		s.preDrain = append(s.preDrain, deletion.DeletionHook{Name: rest[0], Owner: rest[1]})
	case "pre-terminate":
		s.preTerminate = append(s.preTerminate, deletion.DeletionHook{Name: rest[0], Owner: rest[1]})
	case "remove":
		isIt := func(h deletion.DeletionHook) bool { return h.Name == rest[0] }
		s.preDrain, s.preTerminate = slices.DeleteFunc(s.preDrain, isIt), slices.DeleteFunc(s.preTerminate, isIt)
	case "pod":
		s.addPod(line, rest)
	case "allow":
		for _, pod := range s.pods {
			pod.isRefused = pod.isRefused && pod.name != rest[0]
		}
	case "infrastructure", "problem", "finalizers":
		s.setInfrastructure(line, rest)
	case "restart":
		s.drain = deletion.Drain{IsDone: s.drain.IsDone}
	case "pass":
		s.show()
	case "resync":
		s.show()
		s.show()
	case "wait":
		s.wait(s.duration(rest[0]))
	default:
		s.Fatalf("no such command: %q", line)
	}
}

// setNode does the commands about the node.
func (s *script) setNode(line string, rest []string) {
	switch {
	case strings.HasPrefix(line, "given node"):
		s.node = deletion.MachineNode{Name: rest[1], IsControlPlane: strings.HasSuffix(line, "control plane")}
	case line == "given no node":
	case line == "no problem":
		s.infrastructure.problem, s.infrastructure.retryAfter = "", 0
	case line == "node gone":
		s.node.IsGone = true
	case line == "no control plane left", strings.HasPrefix(line, "node timeout"), line == "node deletion refused":
		s.setClusterAPI(line, rest)
	case line == "excluded":
		s.isExcluded = true
	case strings.HasPrefix(line, "others cordoned"):
		s.node.OthersCordoned = rest[1:]
	default:
		s.Fatalf("no such command: %q", line)
	}
}

func (s *script) addPod(line string, rest []string) {
	pod := &worldPod{name: rest[0], isRefused: strings.Contains(line, " refused")}
	if _, ends, ok := strings.Cut(line, " ends "); ok {
		pod.endsAfter = s.duration(ends)
	}
	if strings.HasSuffix(line, "never ends") {
		pod.endsAfter = -1
	}
	s.pods = append(s.pods, pod)
}

// setInfrastructure does the commands about the infrastructure.
func (s *script) setInfrastructure(line string, rest []string) {
	i := &s.infrastructure
	switch {
	case line == "infrastructure gone":
		i.exists = false
	case line == "infrastructure never goes":
		i.goesAfter = -1
	case strings.HasPrefix(line, "infrastructure goes"):
		i.goesAfter = s.duration(rest[1])
	case strings.HasPrefix(line, "finalizers"):
		i.finalizers = rest
	case strings.HasPrefix(line, "problem"):
		i.retryAfter = 0
		if after, err := time.ParseDuration(rest[0]); err == nil {
			i.retryAfter, rest = after, rest[1:]
		}
		i.problem = strings.Join(rest, " ")
	default:
		s.Fatalf("no such command: %q", line)
	}
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// show does a pass, and writes its steps.
func (s *script) show() {
	now := s.now
	for _, step := range s.pass() {
		fmt.Fprintln(&s.out, describeStep(now, step))
		s.last = step
	}
}

// wait has time pass, and looks as often as the last step said.
func (s *script) wait(d time.Duration) {
	end := s.now + d
	for s.last.After > 0 && s.now+s.last.After <= end && !s.released {
		s.advance(s.last.After)
		s.show()
	}
	s.advance(end - s.now)
}
