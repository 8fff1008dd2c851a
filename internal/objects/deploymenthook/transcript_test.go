package deploymenthook_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// TestTranscripts runs the scripts of testdata/sequence/*.txtar. A file has the hooks of releases, by their names, and
// of those without a name of their own in "hooks"; fields of the Deployment's spec in "spec"; and one or more scripts,
// each with its transcript behind it. A release v2 has the pod template v2, and so has v2-fixed.
//
//	given v1 3           a Deployment of three replicas, whose rollout is complete
//	pod exit 1 after 5s  how the next pod of a hook ends: also "never starts", "never ends", "evicted", "node lost",
//	                     and "stays" when it is deleted; its phase is reported "lag 300ms" later; "pods" for all that
//	                     follow
//	apply v2 [skip STAGE] [rerun STAGE] [until [STAGE] ACTION]    the process is killed after that action
//	refuse [for good] WORDS, allow    pods of hooks
//	create-only          makes the Deployment create-only from now on
//	scale 3, delete pod, delete deployment, lose annotation, lose record, wait 1m, old pods stay, no ReplicaSet
func TestTranscripts(t *testing.T) {
	transcript.Each(t, "testdata/sequence/*.txtar", func(t *testing.T, file *transcript.Transcript) {
		file.ExpectScripts(t, func(script string) string { return play(t, file, script) })
	})
}

// A scene is a script while it runs.
type scene struct {
	*cluster
	file  *transcript.Transcript
	began time.Time
	names map[string]string
	out   bytes.Buffer

	isCreateOnly bool
}

// play runs a script, and returns its transcript.
func play(t *testing.T, file *transcript.Transcript, script string) string {
	c := newCluster(t)
	s := &scene{cluster: c, file: file, began: c.now, names: map[string]string{}}
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		fmt.Fprintln(&s.out, line)
		s.command(line)
		s.step()
	}
	s.end()
	return s.out.String()
}

// end writes the state of the Deployment and of the pods of its hooks at the end of a script.
func (s *scene) end() {
	if s.live == nil {
		fmt.Fprintln(&s.out, "no Deployment")
		return
	}
	paused := ""
	if s.live.Spec.Paused {
		paused = ", paused"
	}
	fmt.Fprintf(&s.out, "%d replicas of %s%s: %s\n", *s.live.Spec.Replicas,
		s.live.Spec.Template.Spec.Containers[0].Image, paused, s.describe(s.state()))
	for _, pod := range s.pods {
		fmt.Fprintf(&s.out, "pod %s: %s\n", s.replaceHashes(pod.Name), pod.Status.Phase)
	}
}

// command does one line of a script.
func (s *scene) command(line string) {
	words := strings.Fields(line)
	switch words[0] {
	case "given":
		s.createComplete(words[1], words[2])
	case "apply":
		s.applies(words[1:])
	case "pod":
		s.ends = append(s.ends, s.endOf(words[1:]))
	case "pods":
		s.lastEnd = s.endOf(words[1:])
	case "refuse":
		cause, isFinal := strings.CutPrefix(strings.TrimPrefix(line, "refuse "), "for good ")
		s.refusal, s.isFinal = cause, isFinal
	case "allow":
		s.refusal = ""
	case "scale":
		replicas := int32(s.number(words[1]))
		s.live.Spec.Replicas = &replicas
	case "wait":
		s.jump(s.now.Add(s.duration(words[1])))
	default:
		s.changeByOther(line)
	}
}

// changeByOther applies a change of another writer.
func (s *scene) changeByOther(line string) {
	switch line {
	case "delete pod":
		s.delete(s.pods[len(s.pods)-1].Name)
	case "delete deployment":
		s.deleteDeployment()
	case "lose annotation":
		s.live.Annotations = nil
	case "lose record":
		s.record = nil
	case "old pods stay":
		s.oldStay = true
	case "old pods go":
		s.oldStay = false
		for i := range s.own {
			if !s.own[i].removed.IsZero() {
				s.own[i].removed = s.now
			}
		}
	case "no ReplicaSet":
		s.noSet = true
	case "create-only":
		s.isCreateOnly = true
	default:
		s.t.Fatalf("nothing is known of %q", line)
	}
}

// createComplete creates a Deployment whose rollout is complete.
func (s *scene) createComplete(name, replicas string) {
	rollout := s.release(name)
	count := int32(s.number(replicas))
	s.put(rollout.Desired, false)
	s.live.Spec.Replicas = &count
	s.write(deploymenthook.HookAction{State: &deploymenthook.State{Template: rollout.Template}})
}

// applies applies a release, until the process is killed.
func (s *scene) applies(words []string) {
	rollout := s.release(words[0])
	rollout.Override.By = "ann"
	var until string
	for i := 1; i < len(words); i += 2 {
		switch words[i] {
		case "skip":
			rollout.Override.Skip = append(rollout.Override.Skip, deploymenthook.Stage(words[i+1]))
		case "rerun":
			rollout.Override.Rerun = append(rollout.Override.Rerun, deploymenthook.Stage(words[i+1]))
		case "until":
			until, i = strings.Join(words[i+1:], " "), len(words)
		default:
			s.t.Fatalf("nothing is known of %q", words[i])
		}
	}
	p := &process{cluster: s.cluster, rollout: rollout, onAction: s.writeAction, onText: s.writeLine}
	p.isOver = func(stage deploymenthook.Stage, action deploymenthook.HookAction) bool {
		return until != "" && (until == string(action.Do) || until == string(stage)+" "+string(action.Do))
	}
	if err := p.apply(); err != nil {
		s.writeLine(err.Error())
	}
}

// release returns the rollout of a release.
func (s *scene) release(name string) deploymenthook.Rollout {
	text := s.file.Section("hooks")
	if slices.ContainsFunc(s.file.Files, func(f txtar.File) bool { return f.Name == name }) {
		text = s.file.Section(name)
	}
	template, _, _ := strings.Cut(name, "-")
	object := &unstructured.Unstructured{}
	err := yaml.Unmarshal([]byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "`+template+`"}]}
`), &object.Object)
	more := map[string]any{}
	if err == nil {
		err = yaml.Unmarshal([]byte(s.file.Section("spec")), &more)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	maps.Copy(object.Object["spec"].(map[string]any), more)
	return s.rolloutOf(object, template, text)
}

// rolloutOf reads the hooks of a release.
func (s *scene) rolloutOf(object *unstructured.Unstructured, template, text string) deploymenthook.Rollout {
	rollout := deploymenthook.Rollout{Release: "shop", Desired: &appsv1.Deployment{}, IsCreateOnly: s.isCreateOnly}
	if strings.TrimSpace(text) != "" {
		object.SetAnnotations(map[string]string{deploymenthook.Annotation: text})
		hooks, problems := deploymenthook.Parse(object)
		if hooks == nil {
			s.t.Fatal(problems)
		}
		rollout.Hooks = hooks
		object.SetAnnotations(nil)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, rollout.Desired); err != nil {
		s.t.Fatal(err)
	}
	rollout.Template = deploymenthook.HashTemplate(rollout.Desired)
	s.names[rollout.Template] = template
	return rollout
}

// writeAction writes an action.
func (s *scene) writeAction(stage deploymenthook.Stage, action deploymenthook.HookAction) {
	words := action.Message
	switch {
	case action.Do == deploymenthook.Create || action.Do == deploymenthook.Delete:
		words = action.Pod.Name + afterColon(words)
		// the template, as it is readable
		s.names[action.Pod.Labels["runlevel.dev/hook-hash"]] = action.Pod.Spec.Containers[0].Image
	case action.Do == deploymenthook.Wait:
		words = fmt.Sprintf("until %s%s", s.formatTime(action.Until), afterColon(words))
	case action.Do == deploymenthook.Report:
		words = fmt.Sprintf("attempt %d, %s: %s", action.Attempt, action.Reason, words)
	case action.Do == deploymenthook.GiveUp:
		words = action.Reason + ": " + words
	}
	if action.Replicas != nil {
		words = fmt.Sprintf("to %d%s", *action.Replicas, afterColon(words))
	}
	if action.State != nil {
		words = strings.TrimSpace(words + " [" + s.describe(*action.State) + "]")
	}
	s.writeLine(strings.TrimSpace(fmt.Sprintf("%-4s %-11s %s", cmp.Or(string(stage), "-"), action.Do, words)))
}

func afterColon(words string) string {
	if words == "" {
		return ""
	}
	return ": " + words
}

// writeLine writes a line with the time.
func (s *scene) writeLine(words string) {
	fmt.Fprintf(&s.out, "%6s  %s\n", s.formatTime(s.now), s.replaceHashes(words))
}

func (s *scene) formatTime(timestamp time.Time) string {
	return timestamp.Sub(s.began).Round(time.Second).String()
}

// replaceHashes puts the names of templates in the places of hashes.
func (s *scene) replaceHashes(words string) string {
	for hash, name := range s.names {
		words = strings.ReplaceAll(words, hash, name)
	}
	return words
}

// describe returns a state in words.
func (s *scene) describe(state deploymenthook.State) string {
	var words []string
	switch {
	case state.Rollout != "":
		words = append(words, cmp.Or(s.names[state.Template], "?")+" to "+s.names[state.Rollout])
	case state.Template != "":
		words = append(words, s.names[state.Template])
	}
	if state.IsInstall {
		words = append(words, "install")
	}
	if state.Replicas != nil {
		words = append(words, fmt.Sprintf("%d replicas before", *state.Replicas))
	}
	for _, stage := range deploymenthook.Stages {
		if p, exists := state.Hooks[stage]; exists {
			words = append(words, string(stage)+" "+describeProgress(p))
		}
	}
	return strings.Join(words, ", ")
}

func describeProgress(p deploymenthook.HookProgress) string {
	words := map[bool]string{true: "begins", false: "has begun"}[p.Began == nil]
	switch {
	case p.Result != "":
		words = string(p.Result)
	case p.Failures > 0:
		words = fmt.Sprintf("has failed %d times", p.Failures)
	}
	if p.Pod != "" {
		words += " in a pod"
	}
	if p.By != "" {
		words += " by " + p.By
	}
	return words
}

// endOf reads how a pod ends.
func (s *scene) endOf(words []string) podEnd {
	end := podEnd{after: 10 * time.Second}
	line := " " + strings.Join(words, " ") + " "
	flags := map[string]*bool{
		" never starts ": &end.neverStarts, " never ends ": &end.neverEnds, " evicted ": &end.isEvicted,
		" node lost ": &end.isNodeLost, " stays ": &end.staysDeleted,
	}
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		*flags[flag] = strings.Contains(line, flag)
	}
	for i := range words[:len(words)-1] {
		switch words[i] {
		case "exit":
			end.exitCode = int32(s.number(words[i+1]))
		case "after":
			end.after = s.duration(words[i+1])
		case "lag":
			end.phaseLag = s.duration(words[i+1])
		}
	}
	return end
}

func (s *scene) number(word string) int {
	number, err := strconv.Atoi(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return number
}

func (s *scene) duration(word string) time.Duration {
	duration, err := time.ParseDuration(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return duration
}
