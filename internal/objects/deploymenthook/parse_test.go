package deploymenthook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// deployment returns a Deployment with the containers web and proxy, and the volumes data and cache.
func deployment(t testing.TB, strategy, annotation string) *unstructured.Unstructured {
	t.Helper()
	var object map[string]any
	err := yaml.Unmarshal([]byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      initContainers: [{name: wait}]
      containers: [{name: web}, {name: proxy}]
      volumes: [{name: data}, {name: cache}]
`), &object)
	if err != nil {
		t.Fatal(err)
	}
	made := &unstructured.Unstructured{Object: object}
	if strategy != "" {
		if err := unstructured.SetNestedField(object, strategy, "spec", "strategy", "type"); err != nil {
			t.Fatal(err)
		}
	}
	made.SetAnnotations(map[string]string{deploymenthook.Annotation: annotation})
	return made
}

// TestProblems has each thing that can be wrong, with the line and column where it stands.
func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		strategy string
		hooks    string
		want     string
	}{
		"all is well": {hooks: `
pre:
  execNewPod: {containerName: web, command: [rake]}
post:
  failurePolicy: Ignore
  execNewPod: {containerName: proxy, command: [curl], volumes: [cache]}
`},
		"a text": {hooks: "run the migration\n", want: `
1:1 Invalid: : the annotation is a text, and must be a mapping of pre, mid, post
`},
		"nothing": {hooks: "", want: `
1:1 Invalid: : the annotation is empty, and must be a mapping of pre, mid, post
`},
		"a comment": {hooks: "# later\n", want: `
1:1 Invalid: : the annotation is empty, and must be a mapping of pre, mid, post
`},
		"no stage": {hooks: "{}\n", want: `
1:1 Invalid: : the annotation has no hook: write pre, mid or post, or drop the annotation
`},
		"an empty stage": {hooks: "pre:\n", want: `
1:1 Invalid: pre: pre is empty: write execNewPod below it, or drop it
`},
		"no valid YAML": {hooks: "pre:\n  execNewPod: {containerName: web\n", want: `
1:1 Invalid: : it is no valid YAML: did not find expected ',' or '}'
`},
		"a tab": {hooks: "pre:\n\texecNewPod: {}\n", want: `
2:1 Invalid: : it is no valid YAML: found character that cannot start any token
`},
		"a value that is no YAML": {hooks: "pre:\n  execNewPod: {containerName: web, command: [a], env: [{name: A, value: @hunter2}]}\n", want: `
2:1 Invalid: : it is no valid YAML: found character that cannot start any token
`},
		"two documents": {hooks: "pre: {}\n---\npost: {}\n", want: `
2:1 Invalid: : it has more than one document: write pre, mid and post into one
`},
		"an alias": {hooks: "pre: &hook\n  execNewPod: {containerName: web, command: [rake]}\npost: *hook\n", want: `
1:6 Invalid: : anchors and aliases are not allowed in hooks: write out what they stand for, and put a text that begins with "&" or "*" in quotes
`},
		"a line separator": {hooks: "pre:\n  execNewPod: {containerName: web, command: [\"a\u2028b\"]}\n", want: `
2:1 Invalid: : this line has U+0085, U+2028, U+2029 or U+FEFF, which are not allowed in hooks: write them as \u2028 within double quotes
`},
		"a tag": {hooks: "pre:\n  execNewPod: {containerName: web, command: [!secret a]}\n", want: `
2:46 Invalid: : tags are not allowed in hooks: put a text that begins with "!" in quotes
`},
		"a key twice": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake]}\npre:\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
3:1 Invalid: : the key "pre" stands twice in the same mapping: keep one of them
`},
		"a stage that there is not": {hooks: "before:\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
1:1 Invalid: before: before is an unknown field: there are pre, mid, post
`},
		"a stage in capitals": {hooks: "Pre:\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
1:1 Invalid: Pre: Pre is an unknown field: did you mean pre?
`},
		"fields that are misspelt or in the wrong place": {hooks: `
pre:
  failurepolicy: Abort
  backoff: 3
  command: [rake]
  execNewPod:
    image: registry.example/web
    container: web
    comand: [rake]
    timeoutSeconds: 3
    containerName: web
    command: [rake]
`, want: `
2:3 Invalid: pre.failurepolicy: pre.failurepolicy is an unknown field: did you mean failurePolicy?
3:3 Invalid: pre.backoff: pre.backoff is an unknown field: did you mean backoffLimit?
4:3 Invalid: pre.command: pre.command stands in the wrong place: it is a field of execNewPod
6:5 Invalid: pre.execNewPod.image: pre.execNewPod.image is no field of hooks: the image is that of the container that containerName names
7:5 Invalid: pre.execNewPod.container: pre.execNewPod.container is an unknown field: did you mean containerName?
8:5 Invalid: pre.execNewPod.comand: pre.execNewPod.comand is an unknown field: did you mean command?
9:5 Invalid: pre.execNewPod.timeoutSeconds: pre.execNewPod.timeoutSeconds stands in the wrong place: it is a field of the hook, beside execNewPod
`},
		"DeploymentConfig's nesting": {strategy: "Recreate", hooks: `
recreateParams:
  mid:
    execNewPod: {containerName: web, command: [rake]}
`, want: `
1:1 Invalid: recreateParams: recreateParams is DeploymentConfig's: write pre, mid and post at the top of the annotation, and spec.strategy.type: Recreate
`},
		"DeploymentConfig's tagImages": {hooks: `
post:
  failurePolicy: Ignore
  tagImages:
  - {containerName: web, to: {kind: ImageStreamTag, name: "web:live"}}
`, want: `
3:3 Invalid: post.tagImages: post.tagImages is DeploymentConfig's, and tags no image here: tag it where it is built, or run a command that does so with execNewPod
`},
		"a container that there is not": {hooks: `
pre:
  execNewPod:
    containerName: wep
    command: [rake]
post:
  execNewPod:
    containerName: database
    command: [rake]
`, want: `
3:5 Container: pre.execNewPod.containerName: pre.execNewPod.containerName is "wep", and the template has no such container: did you mean web?
7:5 Container: post.execNewPod.containerName: post.execNewPod.containerName is "database", and the template has no such container: it has web, proxy
`},
		"an init container, and none": {hooks: `
pre:
  execNewPod: {containerName: wait, command: [rake]}
post:
  execNewPod: {command: [rake]}
`, want: `
2:16 Container: pre.execNewPod.containerName: pre.execNewPod.containerName is "wait", which is an init container: name one of the template's containers; it has web, proxy
4:3 Container: post.execNewPod.containerName: post.execNewPod.containerName is missing: name the container of the template whose image runs; it has web, proxy
`},
		"a container that is a number": {hooks: "pre:\n  execNewPod: {containerName: 5, command: [rake]}\n", want: `
2:16 Invalid: pre.execNewPod.containerName: pre.execNewPod.containerName is a number, and must be a text: write it in quotes
`},
		"mid under RollingUpdate": {hooks: "mid:\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
1:1 Strategy: mid: mid needs spec.strategy.type: Recreate, and it is RollingUpdate, where old pods run until new ones do: change the strategy, or use pre
`},
		"post with Abort under RollingUpdate": {strategy: "RollingUpdate", hooks: "post:\n  failurePolicy: Abort\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
2:3 Strategy: post.failurePolicy: post.failurePolicy is Abort, which spec.strategy.type: RollingUpdate does not allow: the rollout is complete by then; write Retry or Ignore, or use pre
`},
		"all with Abort under Recreate": {strategy: "Recreate", hooks: `
pre: {failurePolicy: Abort, execNewPod: {containerName: web, command: [rake]}}
mid: {failurePolicy: Abort, execNewPod: {containerName: web, command: [rake]}}
post: {failurePolicy: Abort, execNewPod: {containerName: web, command: [rake]}}
`},
		"words that there are not": {hooks: `
pre:
  failurePolicy: abort
  keep: always
  execNewPod: {containerName: web, command: [rake]}
post:
  failurePolicy: Continue
  keep: no
  execNewPod: {containerName: web, command: [rake]}
`, want: `
2:3 Invalid: pre.failurePolicy: pre.failurePolicy is "abort": write Abort
3:3 Invalid: pre.keep: pre.keep is "always": write Always
6:3 Invalid: post.failurePolicy: post.failurePolicy is "Continue", and must be one of Abort, Ignore, Retry
7:3 Invalid: post.keep: post.keep is true or false, and must be a text: write it in quotes
`},
		"no execNewPod": {hooks: "pre:\n  failurePolicy: Retry\n", want: `
1:1 Invalid: pre: pre has no execNewPod: write the containerName and the command of the hook below it
`},
		"a command that is a text": {hooks: "pre:\n  execNewPod:\n    containerName: web\n    command: rake db:migrate\n    args: --all\n", want: `
4:5 Invalid: pre.execNewPod.command: pre.execNewPod.command is a text, and must be a list with an item for each word: write ["rake", "db:migrate"], or ["sh", "-c", "…"] for a line of a shell
5:5 Invalid: pre.execNewPod.args: pre.execNewPod.args is a text, and must be a list with an item for each word: write ["--all", "--verbose"]
`},
		"a command that has a number": {hooks: "pre:\n  execNewPod:\n    containerName: web\n    command:\n    - sleep\n    - 5\n", want: `
6:7 Invalid: pre.execNewPod.command[1]: pre.execNewPod.command[1] is a number, and must be a text: write it in quotes
`},
		"no command": {hooks: "pre:\n  execNewPod:\n    containerName: web\n    args: [rake]\npost:\n  execNewPod:\n    containerName: web\n    command: []\n", want: `
2:3 Invalid: pre.execNewPod.command: pre.execNewPod.command is missing: without it, the hook would run what the image runs, which never ends; write it as a list, such as ["rake", "db:migrate"]
8:5 Invalid: post.execNewPod.command: post.execNewPod.command is missing: without it, the hook would run what the image runs, which never ends; write it as a list, such as ["rake", "db:migrate"]
`},
		"environment variables": {hooks: `
pre:
  execNewPod:
    containerName: web
    command: [rake]
    env:
    - {name: MODE, value: migrate}
    - name: PORT
      value: 8080
    - value: nameless
    - name: MODE
      value: other
    - {name: "A=B", value: hunter2}
    - {name: BOTH, value: hunter2, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: REF, valueFrom: {secretKeyRef: {nam: db, key: password}}}
    - {name: REF2, valueFrom: {secretKeyRef: {name: 5, key: password}}}
    - HOME=/tmp
`, want: `
8:7 Invalid: pre.execNewPod.env[1].value: pre.execNewPod.env[1].value is a number, and must be a text: write it in quotes
9:7 Invalid: pre.execNewPod.env[2].name: pre.execNewPod.env[2].name is missing: each environment variable has a name
10:7 Invalid: pre.execNewPod.env[3].name: pre.execNewPod.env[3].name is MODE, as of pre.execNewPod.env[0]: keep one of them
12:8 Invalid: pre.execNewPod.env[4].name: pre.execNewPod.env[4].name is no name of an environment variable: write letters, digits and _, such as DB_NAME, and its content into value
13:36 Invalid: pre.execNewPod.env[5].valueFrom: pre.execNewPod.env[5].valueFrom stands beside a value: keep one of them
14:46 Invalid: pre.execNewPod.env[6].valueFrom.secretKeyRef.nam: pre.execNewPod.env[6].valueFrom.secretKeyRef.nam is an unknown field: is it misspelt?
15:20 Invalid: pre.execNewPod.env[7].valueFrom: pre.execNewPod.env[7].valueFrom has a number where it can't: secretKeyRef.name
16:7 Invalid: pre.execNewPod.env[8]: pre.execNewPod.env[8] is a text, and must be a mapping of name, value, valueFrom
`},
		"an environment that is a mapping": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake], env: {PASSWORD: hunter2}}\n", want: `
2:53 Invalid: pre.execNewPod.env: pre.execNewPod.env is a mapping, and must be a list: write - name: NAME, and below it value or valueFrom
`},
		"volumes": {hooks: `
pre:
  execNewPod:
    containerName: web
    command: [rake]
    volumes:
    - dat
    - scratch
    - cache
post:
  execNewPod:
    containerName: web
    command: [rake]
    volumes: [data, data, {name: cache}]
`, want: `
6:7 UnknownVolume: pre.execNewPod.volumes[0]: pre.execNewPod.volumes[0] is "dat", and the template has no such volume, so the hook runs without it: did you mean data?
7:7 UnknownVolume: pre.execNewPod.volumes[1]: pre.execNewPod.volumes[1] is "scratch", and the template has no such volume, so the hook runs without it: it has data, cache
13:21 Invalid: post.execNewPod.volumes[1]: post.execNewPod.volumes[1] is data a second time: keep one of them
13:27 Invalid: post.execNewPod.volumes[2]: post.execNewPod.volumes[2] is a mapping, and must be the name of a volume of the template alone
`},
		"an unknown volume only warns": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake], volumes: [scratch]}\n", want: `
2:63 UnknownVolume: pre.execNewPod.volumes[0]: pre.execNewPod.volumes[0] is "scratch", and the template has no such volume, so the hook runs without it: it has data, cache
`},
		"numbers": {hooks: `
pre:
  timeoutSeconds: 0
  backoffLimit: -1
  execNewPod: {containerName: web, command: [rake]}
post:
  timeoutSeconds: 10m
  backoffLimit: 1.5
  execNewPod: {containerName: web, command: [rake]}
`, want: `
2:3 Invalid: pre.timeoutSeconds: pre.timeoutSeconds is 0, and must be a whole number of seconds, at least 1: drop it for 600
3:3 Invalid: pre.backoffLimit: pre.backoffLimit is -1, and must be a whole number of times, at least 1: for a hook that runs once, write failurePolicy: Abort
6:3 Invalid: post.timeoutSeconds: post.timeoutSeconds is a text, and must be a whole number of seconds, at least 1: drop it for 600
7:3 Invalid: post.backoffLimit: post.backoffLimit is 1.5, and must be a whole number of times, at least 1: for a hook that runs once, write failurePolicy: Abort
`},
		"a number beyond all": {hooks: "pre:\n  timeoutSeconds: 3000000000\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
2:3 Invalid: pre.timeoutSeconds: pre.timeoutSeconds is 3000000000, and must be a whole number of seconds, at least 1: drop it for 600
`},
		"backoffLimit without Retry": {hooks: "pre:\n  failurePolicy: Abort\n  backoffLimit: 3\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
3:3 NoEffect: pre.backoffLimit: pre.backoffLimit has no effect, because failurePolicy is Abort and only Retry runs a hook again: drop it
`},
		"a ServiceAccount": {hooks: "pre:\n  serviceAccountName: My Account\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
2:3 Invalid: pre.serviceAccountName: pre.serviceAccountName is "My Account", which is no name of a ServiceAccount: it has small letters, digits, - and . only, and begins and ends with a letter or digit
`},
		"resources": {hooks: `
pre:
  resources:
    limits: {cpu: 1, memory: 1 GiB}
    requests: {cpu: -1}
    claims: []
  execNewPod: {containerName: web, command: [rake]}
post:
  resources:
    limits: 128Mi
  execNewPod: {containerName: web, command: [rake]}
`, want: `
3:22 Invalid: pre.resources.limits.memory: pre.resources.limits.memory is "1 GiB", which is no quantity: write a number with a unit behind it, such as 100m or 128Mi
4:16 Invalid: pre.resources.requests.cpu: pre.resources.requests.cpu is "-1", which is no quantity: write a number with a unit behind it, such as 100m or 128Mi
5:5 Invalid: pre.resources.claims: pre.resources.claims is an unknown field: there are limits, requests
9:5 Invalid: post.resources.limits: post.resources.limits is a text, and must be a mapping such as {cpu: 100m, memory: 128Mi}
`},
		"lists and texts for mappings": {hooks: "pre: [rake]\npost:\n  execNewPod: rake\n", want: `
1:1 Invalid: pre: pre is a list, and must be a mapping of failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep
3:3 Invalid: post.execNewPod: post.execNewPod is a text, and must be a mapping of containerName, command, args, env, volumes
`},
	} {
		t.Run(name, func(t *testing.T) {
			hooks, problems := deploymenthook.Parse(deployment(t, test.strategy, strings.TrimPrefix(test.hooks, "\n")))
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), linesOf(problems)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			isRefused := false
			for _, p := range problems {
				isRefused = isRefused || !p.IsWarning()
				if strings.Contains(p.Message, "hunter2") {
					t.Errorf("%s quotes a value", p.Message)
				}
			}
			if isRefused != (hooks == nil) {
				t.Errorf("the hooks are %v, and there are %d problems", hooks, len(problems))
			}
		})
	}
}

// linesOf are problems, one a line.
func linesOf(problems []deploymenthook.HookProblem) string {
	var lines strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&lines, "%d:%d %s: %s: %s\n", p.Line, p.Column, p.Rule, p.Field, p.Message)
	}
	return lines.String()
}

// TestDefaults are what a hook does that says nothing of it.
func TestDefaults(t *testing.T) {
	hook := &deploymenthook.Hook{}
	if hook.Policy() != deploymenthook.Retry || hook.Timeout().Minutes() != 10 || hook.Keeps() != deploymenthook.KeepFailed {
		t.Errorf("a hook that says nothing has the policy %s, %s, and keeps %s", hook.Policy(), hook.Timeout(), hook.Keeps())
	}
	hook = &deploymenthook.Hook{FailurePolicy: deploymenthook.Abort, TimeoutSeconds: 30, Keep: deploymenthook.KeepNever}
	if hook.Policy() != deploymenthook.Abort || hook.Timeout().Seconds() != 30 || hook.Keeps() != deploymenthook.KeepNever {
		t.Errorf("a hook that says all of it has the policy %s, %s, and keeps %s", hook.Policy(), hook.Timeout(), hook.Keeps())
	}
}

// TestParseReadsAllFields of a hook.
func TestParseReadsAllFields(t *testing.T) {
	hooks, problems := deploymenthook.Parse(deployment(t, "Recreate", `
mid:
  failurePolicy: Retry
  timeoutSeconds: 60
  backoffLimit: 3
  serviceAccountName: migrator
  keep: Always
  resources: {limits: {memory: 128Mi}}
  execNewPod:
    containerName: web
    command: [rake, "db:migrate"]
    args: [--all]
    env:
    - {name: MODE, value: migrate}
    - name: PASSWORD
      valueFrom: {secretKeyRef: {name: database, key: password}}
    volumes: [data]
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got, err := yaml.Marshal(hooks)
	if err != nil {
		t.Fatal(err)
	}
	want := `mid:
  backoffLimit: 3
  execNewPod:
    args:
    - --all
    command:
    - rake
    - db:migrate
    containerName: web
    env:
    - name: MODE
      value: migrate
    - name: PASSWORD
      valueFrom:
        secretKeyRef:
          key: password
          name: database
    volumes:
    - data
  failurePolicy: Retry
  keep: Always
  resources:
    limits:
      memory: 128Mi
  serviceAccountName: migrator
  timeoutSeconds: 60
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnErrorBehindManyWarnings is reported, however few problems are.
func TestAnErrorBehindManyWarnings(t *testing.T) {
	var volumes strings.Builder
	for i := range 100 {
		fmt.Fprintf(&volumes, "    - scratch-%d\n", i)
	}
	hooks, problems := deploymenthook.Parse(deployment(t, "", "pre:\n  execNewPod:\n    containerName: web\n    command: [rake]\n    volumes:\n"+volumes.String()+"post: {}\n"))
	if hooks != nil || len(problems) > 30 || !slices.ContainsFunc(problems, func(p deploymenthook.HookProblem) bool { return !p.IsWarning() }) {
		t.Errorf("the hooks are %v, with %d problems", hooks, len(problems))
	}
}

// TestWithoutHooks is a Deployment that has none.
func TestWithoutHooks(t *testing.T) {
	without := deployment(t, "", "")
	without.SetAnnotations(nil)
	if hooks, problems := deploymenthook.Parse(without); hooks != nil || problems != nil {
		t.Errorf("Parse returns %v, %v", hooks, problems)
	}
}
