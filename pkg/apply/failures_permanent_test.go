package apply_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A refusedCase is a manifest that a real server refuses permanently.
type refusedCase struct {
	given   string // an object that exists before, of the same release
	prepare func(t *testing.T, namespace string)
	files   string
	reason  string
	want    string
}

const (
	where = " (0000_10_shop_50_file.yaml:1, level 10, shop): "
	pod   = `spec: {automountServiceAccountToken: false, containers: [{name: web, image: registry.example/web}]}`
)

var refusedCases = map[string]refusedCase{
	"invalid": {
		files:  `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {ports: [{port: 70000, targetPort: 1}]}}`,
		reason: object.ResourceInvalid,
		want: "Service NS/web" + where +
			`Service "web" is invalid: spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`,
	},
	"wrong type": {
		files:  `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: [red]}`,
		reason: object.ResourceInvalid,
		want: "ConfigMap NS/a" + where +
			"failed to create typed patch object (NS/a; /v1, Kind=ConfigMap): .data: expected map, got &{[red]}",
	},
	"wrong base64": {
		files:  `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, binaryData: {picture: "a?"}}`,
		reason: object.ResourceInvalid,
		want: "ConfigMap NS/a" + where +
			"failed to convert new object (NS/a; /v1, Kind=ConfigMap) to proper version: " +
			"unable to convert unstructured object to /v1, Kind=ConfigMap: error decoding from json: illegal base64 " +
			"data at input byte 1",
	},
	"unknown fields": {
		files: `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spce: {}, spec: {containers: [{name: web, image: registry.example/web, imagePolicy: Always}]}}`,
		want: "Pod NS/web" + where +
			`unknown field .spce, .spec.containers[name="web"].imagePolicy: ` +
			"correct or remove it, or drop unknown fields",
		reason: object.ResourceInvalid,
	},
	"missing kind": {
		files:  `{apiVersion: none.example.com/v1, kind: Thing, metadata: {name: a, namespace: NS}}`,
		reason: object.ResourceTypeMissing,
		want:   "Thing NS/a" + where + "the cluster has no kind Thing.none.example.com: the cluster does not serve it",
	},
	"missing version": {
		files:  `{apiVersion: apps/v7, kind: Deployment, metadata: {name: a, namespace: NS}}`,
		reason: object.ResourceTypeMissing,
		want: "Deployment NS/a" + where +
			"the cluster has Deployment.apps in version v1, not in v7: the cluster does not serve it",
	},
	"LimitRange": {
		given:  `{apiVersion: v1, kind: LimitRange, metadata: {name: small, namespace: NS}, spec: {limits: [{type: PersistentVolumeClaim, max: {storage: 1Gi}}]}}`,
		files:  `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: NS}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`,
		reason: object.ResourceForbidden,
		want: "PersistentVolumeClaim NS/data" + where + `persistentvolumeclaims "data" is forbidden: ` +
			"maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi",
	},
	"quota that requires limits": {
		prepare: func(t *testing.T, namespace string) {
			quota := "-- 0000_10_shop_50_file.yaml --\n{apiVersion: v1, kind: ResourceQuota, metadata: {name: cpus, " +
				"namespace: NS, annotations: {runlevel.dev/ready: has(self.status.used)}}, spec: {hard: {limits.cpu: 2}}}\n"
			if did := run(t, t.Context(), load(t, namespace, namespace, quota), apply.Options{}); did.Err != nil {
				t.Fatal(did.Err)
			}
		},
		files:  `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, ` + pod + `}`,
		reason: object.ResourceForbidden,
		want:   "Pod NS/web" + where + `pods "web" is forbidden: failed quota: cpus: must specify limits.cpu for: web`,
	},
	"pod security": {
		given:  `{apiVersion: v1, kind: Namespace, metadata: {name: NS-strict, labels: {pod-security.kubernetes.io/enforce: baseline}}}`,
		files:  `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS-strict}, spec: {automountServiceAccountToken: false, hostNetwork: true, containers: [{name: web, image: registry.example/web}]}}`,
		reason: object.ResourceForbidden,
		want: "Pod NS-strict/web" + where +
			`pods "web" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`,
	},
	"too large ConfigMap": {
		files:  `{apiVersion: v1, kind: ConfigMap, metadata: {name: large, namespace: NS}, data: {text: LARGE}}`,
		reason: object.ResourceInvalid,
		want: "ConfigMap NS/large" + where +
			`ConfigMap "large" is invalid: []: Too long: may not be more than 1048576 bytes`,
	},
	"too large for etcd": {
		files:  `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {automountServiceAccountToken: false, containers: [{name: web, image: registry.example/web, args: [LARGE, LARGE]}]}}`,
		reason: object.ResourceInvalid,
		want: "Pod NS/web" + where + "it is too large: rpc error: code = ResourceExhausted desc = trying to send " +
			"message larger than max (N vs. 2097152)",
	},
	"too large for the API server": {
		files:  `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {containers: [{name: web, image: registry.example/web, args: [LARGE, LARGE, LARGE]}]}}`,
		reason: object.ResourceInvalid,
		want:   "Pod NS/web" + where + "it is too large: Request entity too large: limit is 3145728",
	},
	"policy": {
		prepare: func(t *testing.T, namespace string) {
			change(t, namespace, "", noColours, apply.Options{NoWait: true})
			awaitRefusal(t, namespace,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"colour": "red"}})
		},
		files:  `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: {colour: red}}`,
		reason: object.ResourceForbidden,
		want: "ConfigMap NS/a" + where +
			`configmaps "a" is forbidden: ValidatingAdmissionPolicy 'NS' with binding 'NS' denied request: no colours please`,
	},
	"denying webhook": {
		prepare: func(t *testing.T, namespace string) {
			webhook(t, namespace, serve(t,
				answer(http.StatusTooManyRequests, "come back: failed calling webhook, exceeded quota")), 5)
			awaitRefusal(t, namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		},
		files:  `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}`,
		reason: object.ResourceForbidden,
		want: "ConfigMap NS/a" + where +
			`admission webhook "shop.example.com" denied the request: come back: failed calling webhook, exceeded quota` +
			"\n  ValidatingWebhookConfiguration NS: its webhook shop.example.com has denied the request\n  see " +
			"\"kubectl get validatingwebhookconfigurations NS -o yaml\"",
	},
}

// noColours is a policy that denies objects with colours.
const noColours = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NS}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations: [{expression: "!has(object.data) || !('colour' in object.data)", message: no colours please, reason: Forbidden}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NS}
spec: {policyName: NS, validationActions: [Deny]}
`

func TestPermanentFailuresAreNotRetried(t *testing.T) {
	for name, row := range refusedCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			if row.prepare != nil {
				row.prepare(t, namespace)
			}
			did := change(t, namespace, row.given, row.files, apply.Options{NoWait: true})
			if diff := cmp.Diff(row.want, did.sentence(namespace)); diff != "" {
				t.Error(diff)
			}
			if got := did.Changes[0].Err; got == nil || got.Reason != row.reason {
				t.Errorf("got failure %+v, want reason %s", got, row.reason)
			}
			if retries := did.retries(namespace); len(retries) > 0 {
				t.Error("the step was retried:", retries)
			}
		})
	}
}

// large does not fit into a ConfigMap, and twice not into any object.
var large = strings.Repeat("x", 1_100_000)

// change applies the given file, if any, and then another one of the same name.
func change(t *testing.T, namespace, given, files string, options apply.Options) applied {
	t.Helper()
	const file = "-- 0000_10_shop_50_file.yaml --\n"
	if given != "" {
		if did := run(t, t.Context(), load(t, namespace, namespace, file+given+"\n"),
			apply.Options{NoWait: true}); did.Err != nil {
			t.Fatal("apply of the given object:", did.Err)
		}
	}
	files = strings.ReplaceAll(files, "LARGE", large)
	return run(t, t.Context(), load(t, namespace, namespace, file+files+"\n"), options)
}

// sentence returns the final message of a run, with NS for the namespace, and N for numbers that differ from run to
// run.
func (a applied) sentence(namespace string) string {
	if a.Err == nil {
		return ""
	}
	return sizes.ReplaceAllString(strings.ReplaceAll(a.Err.Error(), namespace, "NS"), "(N vs.")
}

// retries returns the reasons and messages of the retried attempts.
func (a applied) retries(namespace string) []string {
	var retries []string
	for _, event := range a.events {
		if event.Type == apply.Retrying {
			retries = append(retries, event.Reason+": "+strings.ReplaceAll(event.Message, namespace, "NS"))
		}
	}
	return retries
}

// If a service account loses a right, its run ends. When it has the right again, the next run continues.
func TestRightThatIsLostAndRestored(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	may := grant(t, namespace)
	may("configmaps", "services")
	files := `
-- 0000_10_shop_10_first.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: NS}}
-- 0000_20_shop_10_web.yaml --
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {ports: [{port: 80}]}}
-- 0000_30_shop_10_last.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: last, namespace: NS}}
`
	release := load(t, namespace, namespace, files)
	did := runOn(t, t.Context(), as(t, namespace), release, apply.Options{OnEvent: func(event apply.Event) {
		if event.Type == apply.Applied && event.Object.Name == "first" {
			may("configmaps")
		}
	}})
	want := "Service NS/web (0000_20_shop_10_web.yaml:1, level 20, shop): services \"web\" is forbidden: " +
		"User \"system:serviceaccount:NS:deployer\" cannot patch resource \"services\" in API group \"\" in the " +
		"namespace \"NS\""
	if diff := cmp.Diff(want, did.sentence(namespace)); diff != "" || reason.Of(did.Err) != object.ResourceForbidden {
		t.Error(diff)
	}
	if retries := did.retries(namespace); len(retries) > 0 {
		t.Error("the step was retried:", retries)
	}
	if diff := cmp.Diff("created ConfigMap NS/first\nfailed Service NS/web\nnot done ConfigMap NS/last\n",
		strings.ReplaceAll(did.actions(), namespace, "NS")); diff != "" {
		t.Error(diff)
	}
	may("configmaps", "services")
	did = runOn(t, t.Context(), as(t, namespace), release, apply.Options{})
	if diff := cmp.Diff("unchanged ConfigMap NS/first\ncreated Service NS/web\ncreated ConfigMap NS/last\n",
		strings.ReplaceAll(did.actions(), namespace, "NS")); diff != "" || did.Err != nil {
		t.Error(did.Err, diff)
	}
}

// A run that loses its lock is interrupted, and reports only this.
func TestInterruptedRunReportsTheCause(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	called, arrived, ended := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	webhook(t, namespace, serve(t, func(_ http.ResponseWriter, r *http.Request) {
		asked, _ := io.ReadAll(r.Body)
		about := called // one of the probes
		if strings.Contains(string(asked), `"name":"ours"`) {
			about = arrived
		}
		select {
		case about <- struct{}{}:
		default:
		}
		<-ended
	}), 30)
	defer close(ended)
	awaitCall(t, namespace, called)
	ctx, lose := context.WithCancelCause(t.Context())
	defer lose(nil)
	go func() {
		<-arrived
		lose(errLost)
	}()
	release := load(t, namespace, namespace,
		"-- 0000_10_shop_50_file.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: ours, namespace: NS}}\n")
	did := run(t, ctx, release, apply.Options{})
	if did.Changes[0].Err == nil {
		t.Fatal(did.Err, did.actions())
	}
	if diff := cmp.Diff(errLost.Error()+": 1 object not applied", did.sentence(namespace)); diff != "" {
		t.Error(diff)
	}
	if message := did.Changes[0].Err.Err.Error(); message != "the request was cut off, and may or may not be applied: "+
		errLost.Error() {
		t.Error(message)
	}
}
