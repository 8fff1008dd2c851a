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

// TestProblemsOfHooks has each possible problem, with its line and column.
func TestProblemsOfHooks(t *testing.T) {
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
1:1 InvalidHooks: Invalid value: it is of type string, and must be a mapping of pre, mid, post
`},
		"nothing": {hooks: "", want: `
1:1 InvalidHooks: Required value: the annotation has no hook: write pre, mid or post, or drop the annotation
`},
		"a comment": {hooks: "# later\n", want: `
1:1 InvalidHooks: Required value: the annotation has no hook: write pre, mid or post, or drop the annotation
`},
		"no stage": {hooks: "{}\n", want: `
1:1 InvalidHooks: Required value: the annotation has no hook: write pre, mid or post, or drop the annotation
`},
		"an empty stage": {hooks: "pre:\n", want: `
1:1 InvalidHooks: pre: Required value: write execNewPod below it, or drop it
`},
		"no valid YAML": {hooks: "pre:\n  execNewPod: {containerName: web\n", want: `
1:1 InvalidHooks: a "{" is not closed, or a comma is missing behind it: add it
`},
		"a tab": {hooks: "pre:\n\texecNewPod: {}\n", want: `
2:1 InvalidHooks: this line begins with a tab: indent it with blanks
`},
		"a value of invalid YAML": {hooks: "pre:\n  execNewPod: {containerName: web, command: [a], env: [{name: A, " +
			"value: @hunter2}]}\n", want: `
2:1 InvalidHooks: a value begins with a character that YAML reserves, such as @, % or a backquote: put it in quotes
`},
		"two documents": {hooks: "pre: {}\n---\npost: {}\n", want: `
2:1 InvalidHooks: it has more than one document: write pre, mid and post into one
`},
		"an alias": {hooks: "pre: &hook\n  execNewPod: {containerName: web, command: [rake]}\npost: *hook\n", want: `
1:6 InvalidHooks: anchors, aliases and tags are not allowed in hooks: write out what they stand for, and put a text that begins with "&", "*" or "!" in quotes
`},
		"a line separator": {hooks: "pre:\n  execNewPod: {containerName: web, command: [\"a\u2028b\"]}\n", want: `
2:1 InvalidHooks: this line has U+0085, U+2028, U+2029 or U+FEFF, which are not allowed in hooks: write them as \u2028 within double quotes
`},
		"a tag": {hooks: "pre:\n  execNewPod: {containerName: web, command: [!secret a]}\n", want: `
2:46 InvalidHooks: anchors, aliases and tags are not allowed in hooks: write out what they stand for, and put a text that begins with "&", "*" or "!" in quotes
`},
		"a key twice": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake]}\npre:\n  execNewPod: " +
			"{containerName: web, command: [rake]}\n", want: `
3:1 InvalidHooks: the key "pre" occurs twice in the same mapping: keep one of them
`},
		"a stage that there is not": {hooks: "before:\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
1:1 InvalidHooks: before: Forbidden: unknown field: write one of pre, mid, post
`},
		"a stage in capitals": {hooks: "Pre:\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
1:1 InvalidHooks: Pre: Forbidden: unknown field: write one of pre, mid, post
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
2:3 InvalidHooks: pre.failurepolicy: Forbidden: unknown field: write one of failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep
3:3 InvalidHooks: pre.backoff: Forbidden: unknown field: write one of failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep
4:3 InvalidHooks: pre.command: Forbidden: unknown field: write one of failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep
6:5 InvalidHooks: pre.execNewPod.image: Forbidden: unknown field: write one of containerName, command, args, env, volumes
7:5 InvalidHooks: pre.execNewPod.container: Forbidden: unknown field: write one of containerName, command, args, env, volumes
8:5 InvalidHooks: pre.execNewPod.comand: Forbidden: unknown field: write one of containerName, command, args, env, volumes
9:5 InvalidHooks: pre.execNewPod.timeoutSeconds: Forbidden: unknown field: write one of containerName, command, args, env, volumes
`},
		"DeploymentConfig's nesting": {strategy: "Recreate", hooks: `
recreateParams:
  mid:
    execNewPod: {containerName: web, command: [rake]}
`, want: `
1:1 InvalidHooks: recreateParams: Forbidden: unknown field: write one of pre, mid, post
`},
		"DeploymentConfig's tagImages": {hooks: `
post:
  failurePolicy: Ignore
  tagImages:
  - {containerName: web, to: {kind: ImageStreamTag, name: "web:live"}}
`, want: `
3:3 InvalidHooks: post.tagImages: Forbidden: unknown field: write one of failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep
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
3:5 HookContainer: pre.execNewPod.containerName: Not found: "wep": name one of the template's containers: it has web, proxy
7:5 HookContainer: post.execNewPod.containerName: Not found: "database": name one of the template's containers: it has web, proxy
`},
		"an init container, and none": {hooks: `
pre:
  execNewPod: {containerName: wait, command: [rake]}
post:
  execNewPod: {command: [rake]}
`, want: `
2:16 HookContainer: pre.execNewPod.containerName: Not found: "wait": name one of the template's containers: it has web, proxy
4:3 HookContainer: post.execNewPod.containerName: Required value: name the container of the template whose image runs: it has web, proxy
`},
		"a number as the container": {hooks: "pre:\n  execNewPod: {containerName: 5, command: [rake]}\n", want: `
2:16 InvalidHooks: pre.execNewPod.containerName: Invalid value: it is of type number, and must be a string: write it in quotes
`},
		"mid under RollingUpdate": {hooks: "mid:\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
1:1 HookStrategy: mid: Forbidden: it needs spec.strategy.type: Recreate, and that is RollingUpdate, where old pods run until new ones do: change the strategy, or use pre
`},
		"post with Abort under RollingUpdate": {strategy: "RollingUpdate",
			hooks: "post:\n  failurePolicy: Abort\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
2:3 HookStrategy: post.failurePolicy: Forbidden: Abort has nothing to stop under spec.strategy.type: RollingUpdate, where the rollout is complete by then: write Retry or Ignore, or use pre
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
  execNewPod: {containerName: web, command: [rake]}
`, want: `
2:3 InvalidHooks: pre.failurePolicy: Unsupported value: "abort": supported values: "Abort", "Ignore", "Retry"
3:3 InvalidHooks: pre.keep: Unsupported value: "always": supported values: "Failed", "Never", "Always"
6:3 InvalidHooks: post.failurePolicy: Unsupported value: "Continue": supported values: "Abort", "Ignore", "Retry"
`},
		"no execNewPod": {hooks: "pre:\n  failurePolicy: Retry\n", want: `
1:1 InvalidHooks: pre.execNewPod: Required value: write the containerName and the command of the hook below it
`},
		"a text as the command": {hooks: "pre:\n  execNewPod:\n    containerName: web\n    command: rake " +
			"db:migrate\n    args: --all\n", want: `
5:5 InvalidHooks: pre.execNewPod.args: Invalid value: it is of type string, and must be a list with an item for each word, such as [rake, "db:migrate"], or [sh, -c, "…"] for a line of a shell
`},
		"a command that has a number": {hooks: "pre:\n  execNewPod:\n    containerName: web\n    command:\n    - " +
			"sleep\n    - 5\n", want: `
6:7 InvalidHooks: pre.execNewPod.command[1]: Invalid value: it is of type number, and must be a string: write it in quotes
`},
		"no command": {hooks: "pre:\n  execNewPod:\n    containerName: web\n    args: [rake]\npost:\n  " +
			"execNewPod:\n    containerName: web\n    command: []\n", want: `
2:3 InvalidHooks: pre.execNewPod.command: Required value: without it, the hook would run what the image runs, which never ends: write it as a list, such as [rake, "db:migrate"]
8:5 InvalidHooks: post.execNewPod.command: Required value: without it, the hook would run what the image runs, which never ends: write it as a list, such as [rake, "db:migrate"]
`},
		"environment variables": {hooks: `
pre:
  execNewPod:
    containerName: web
    command: [rake]
    env:
    - {name: MODE, value: migrate}
    - value: nameless
    - name: MODE
      value: other
    - {name: "A=B", value: hunter2}
    - {name: BOTH, value: hunter2, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
`, want: `
7:7 InvalidHooks: pre.execNewPod.env[1].name: Required value: each environment variable has a name
8:7 InvalidHooks: pre.execNewPod.env[2].name: Duplicate value: "MODE"
10:8 InvalidHooks: pre.execNewPod.env[3].name: Invalid value: not a valid environment variable name: write letters, digits and _, such as DB_NAME, and its content into value
11:36 InvalidHooks: pre.execNewPod.env[4].valueFrom: Forbidden: valueFrom and value are exclusive: remove one of them
`},
		"a number as a value": {hooks: "pre:\n  execNewPod:\n    containerName: web\n    command: [rake]\n    " +
			"env:\n    - {name: A, value: a}\n    - name: PORT\n      value: 8080\n", want: `
8:7 InvalidHooks: pre.execNewPod.env[1].value: Invalid value: it is of type number, and must be a string: write it in quotes
`},
		"an environment that has a text": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake], env: " +
			"[HOME=hunter2]}\n", want: `
2:59 InvalidHooks: pre.execNewPod.env[0]: Invalid value: it is of type string, and must be a mapping of name, value, valueFrom
`},
		"fields of a reference": {hooks: `
pre:
  execNewPod:
    containerName: web
    command: [rake]
    env:
    - {name: A, valeu: hunter2}
    - {name: REF, valueFrom: {secretKeyRef: {nam: db, key: password}}}
`, want: `
6:17 InvalidHooks: pre.execNewPod.env[0].valeu: Forbidden: unknown field: write one of name, value, valueFrom
7:46 InvalidHooks: pre.execNewPod.env[1].valueFrom.secretKeyRef.nam: Forbidden: unknown field: is it misspelt?
`},
		"a type within a reference": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake], env: [{name: " +
			"REF, valueFrom: {secretKeyRef: {name: 5}}}]}\n", want: `
2:98 InvalidHooks: pre.execNewPod.env[0].valueFrom.secretKeyRef.name: Invalid value: it is of type number, and must be a string: write it in quotes
`},
		"a divisor": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake], env: [{name: REF, valueFrom: " +
			"{resourceFieldRef: {resource: limits.cpu, divisor: many}}}]}\n", want: `
2:124 InvalidHooks: pre.execNewPod.env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "many": must be a quantity, such as 100m or 128Mi
`},
		"a word of another type": {hooks: "pre:\n  keep: no\n  execNewPod: {containerName: web, command: [rake]}\n",
			want: `
2:3 InvalidHooks: pre.keep: Invalid value: it is of type bool, and must be a string: write it in quotes
`},
		"a time with its unit": {hooks: "pre:\n  timeoutSeconds: 10m\n  execNewPod: {containerName: web, command: " +
			"[rake]}\n", want: `
2:3 InvalidHooks: pre.timeoutSeconds: Invalid value: it is of type string, and must be a whole number
`},
		"claims and a list for limits": {hooks: "pre:\n  resources: {limits: [128Mi], claims: [{name: gpu}]}\n  " +
			"execNewPod: {containerName: web, command: [rake]}\n", want: `
2:15 InvalidHooks: pre.resources.limits: Invalid value: it is of type array, and must be a mapping
`},
		"resource claims": {hooks: "pre:\n  resources: {claims: [{name: gpu}]}\n  execNewPod: {containerName: web, " +
			"command: [rake]}\n", want: `
2:15 InvalidHooks: pre.resources.claims: Forbidden: the pod of a hook has no resource claims: drop it
`},
		"an extended resource": {hooks: "pre:\n  resources:\n    limits:\n      cpu: 1\n      example.com/gpu: " +
			"many\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
5:7 InvalidHooks: pre.resources.limits[example.com/gpu]: Invalid value: "many": must be a quantity, such as 100m or 128Mi
`},
		"a list for a hook": {hooks: "pre: [rake]\n", want: `
1:1 InvalidHooks: pre: Invalid value: it is of type array, and must be a mapping of failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep
`},
		"a key with a line break": {hooks: "pre: {\"a\\nb\": 1}\n", want: `
1:7 InvalidHooks: pre.a\nb: Forbidden: unknown field: write one of failurePolicy, execNewPod, timeoutSeconds, backoffLimit, serviceAccountName, resources, keep
`},
		"a mapping as the environment": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake], env: " +
			"{PASSWORD: hunter2}}\n", want: `
2:53 InvalidHooks: pre.execNewPod.env: Invalid value: it is of type object, and must be a list
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
    volumes: [data, data]
`, want: `
6:7 HookVolume: pre.execNewPod.volumes[0]: Not found: "dat": the hook runs without it, because the template has no such volume: it has data, cache
7:7 HookVolume: pre.execNewPod.volumes[1]: Not found: "scratch": the hook runs without it, because the template has no such volume: it has data, cache
13:21 InvalidHooks: post.execNewPod.volumes[1]: Duplicate value: "data"
`},
		"an unknown volume only warns": {hooks: "pre:\n  execNewPod: {containerName: web, command: [rake], volumes: " +
			"[scratch]}\n", want: `
2:63 HookVolume: pre.execNewPod.volumes[0]: Not found: "scratch": the hook runs without it, because the template has no such volume: it has data, cache
`},
		"numbers": {hooks: `
pre:
  timeoutSeconds: 0
  backoffLimit: -1
  execNewPod: {containerName: web, command: [rake]}
post:
  timeoutSeconds: 3000000000
  execNewPod: {containerName: web, command: [rake]}
`, want: `
2:3 InvalidHooks: pre.timeoutSeconds: Invalid value: 0: must be from 1 to 2147483647: drop it for 600
3:3 InvalidHooks: pre.backoffLimit: Invalid value: -1: must be at least 1: for a hook that runs once, write failurePolicy: Abort
6:3 InvalidHooks: post.timeoutSeconds: Invalid value: 3000000000: must be from 1 to 2147483647: drop it for 600
`},
		"a decimal": {hooks: "pre:\n  backoffLimit: 1.5\n  execNewPod: {containerName: web, command: [rake]}\n", want: `
2:3 InvalidHooks: pre.backoffLimit: Invalid value: it is of type number 1.5, and must be a whole number
`},
		"backoffLimit without Retry": {hooks: "pre:\n  failurePolicy: Abort\n  backoffLimit: 3\n  execNewPod: " +
			"{containerName: web, command: [rake]}\n", want: `
3:3 HookIneffective: pre.backoffLimit: Forbidden: it has no effect with failurePolicy: Abort, since only Retry runs a hook again: drop it
`},
		"a ServiceAccount": {hooks: "pre:\n  serviceAccountName: My Account\n  execNewPod: {containerName: web, " +
			"command: [rake]}\n", want: `
2:3 InvalidHooks: pre.serviceAccountName: Invalid value: "My Account": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
`},
		"resources": {hooks: `
pre:
  resources:
    limits: {cpu: 1, memory: 1 GiB}
    requests: {cpu: -1}
  execNewPod: {containerName: web, command: [rake]}
`, want: `
3:22 InvalidHooks: pre.resources.limits[memory]: Invalid value: "1 GiB": must be a quantity, such as 100m or 128Mi
4:16 InvalidHooks: pre.resources.requests[cpu]: Invalid value: "-1": must be a quantity, such as 100m or 128Mi
`},
		"a text for a mapping": {hooks: "post:\n  execNewPod: rake\n", want: `
2:3 InvalidHooks: post.execNewPod: Invalid value: it is of type string, and must be a mapping of containerName, command, args, env, volumes
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
		fmt.Fprintf(&lines, "%d:%d %s: %s\n", p.Line, p.Column, p.Rule, p.Message)
	}
	return lines.String()
}

// TestDefaultsOfHooks compares the defaults of an empty hook, and the explicit settings of another.
func TestDefaultsOfHooks(t *testing.T) {
	hook := &deploymenthook.Hook{}
	if hook.Policy() != deploymenthook.Retry || hook.Timeout().Minutes() != 10 ||
		hook.Keeps() != deploymenthook.KeepFailed {
		t.Errorf("empty hook: got policy %s, timeout %s and keep %s, want the defaults", hook.Policy(), hook.Timeout(),
			hook.Keeps())
	}
	hook = &deploymenthook.Hook{
		FailurePolicy:  deploymenthook.Abort,
		TimeoutSeconds: new(int64(30)),
		Keep:           deploymenthook.KeepNever,
	}
	if hook.Policy() != deploymenthook.Abort || hook.Timeout().Seconds() != 30 ||
		hook.Keeps() != deploymenthook.KeepNever {
		t.Errorf("full hook: got policy %s, timeout %s and keep %s, want its settings", hook.Policy(), hook.Timeout(),
			hook.Keeps())
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
	hooks, problems := deploymenthook.Parse(deployment(t, "",
		"pre:\n  execNewPod:\n    containerName: web\n    command: [rake]\n    volumes:\n"+volumes.String()+
			"post: {}\n"))
	if hooks != nil || len(problems) > 30 ||
		!slices.ContainsFunc(problems, func(p deploymenthook.HookProblem) bool { return !p.IsWarning() }) {
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
