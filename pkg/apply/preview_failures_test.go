package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// noneOnDryRun installs a webhook that allows everything, and has the side effects NoneOnDryRun.
func noneOnDryRun(t *testing.T, namespace string) {
	t.Helper()
	called := make(chan struct{}, 100)
	webhook(t, namespace, serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(http.StatusOK, "")(w, r)
		called <- struct{}{}
	}), 5)
	configurations := test.Client(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	configuration, err := configurations.Get(t.Context(), namespace, metav1.GetOptions{})
	must(t, err)
	configuration.Webhooks[0].SideEffects = new(admissionregistrationv1.SideEffectClassNoneOnDryRun)
	_, err = configurations.Update(t.Context(), configuration, metav1.UpdateOptions{})
	must(t, err)
	awaitCall(t, namespace, called)
}

func TestPreviewReportsRetriedFailures(t *testing.T) {
	runAll(t, map[string]previewCase{
		"webhook that denies": {
			prepare: func(t *testing.T, namespace string) {
				webhook(t, namespace, serve(t, answer(http.StatusForbidden, "no hats")), 5)
				awaitRefusal(t, namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}})
			},
			files: one(red), want: "failed ConfigMap NS/it: UpdatePayloadResourceForbidden: admission webhook " +
				"\"shop.example.com\" denied the request: no hats\n",
		},
		"unavailable webhook": {
			prepare: retriedCases["failing webhook"].asObstacle(), files: one(red), done: "nothing",
			want: "not checkable ConfigMap NS/it: the server refuses it for now, and an apply would try again: " +
				"Internal error occurred: failed calling webhook \"shop.example.com\": " +
				"failed to call webhook: an error on the server (\"out of order\") has prevented the request from " +
				"succeeding; " +
				"ValidatingWebhookConfiguration ...\n",
		},
		"quota": {
			prepare: retriedCases["quota"].asObstacle(), files: one(retriedCases["quota"].files), done: "nothing",
			want: "not checkable Service NS/web: the server refuses it for now, and an apply would try again: " +
				"services \"web\" is forbidden: exceeded quota: few, requested: services=1, used: services=0, " +
				"limited: services=0\n",
		},
		"terminating namespace": {
			prepare: retriedCases["terminating namespace"].asObstacle(),
			files:   one(retriedCases["terminating namespace"].files), done: "nothing",
			want: "not checkable ConfigMap NS-old/a: the server refuses it for now, and an apply would try again: " +
				"configmaps \"a\" is forbidden: unable to create new content in namespace NS-old because it is being " +
				"terminated: it was tried in namespace kube-public\n",
		},
		"unavailable aggregated API": {
			prepare: retriedCases["unavailable aggregated API"].asObstacle(),
			files:   one(retriedCases["unavailable aggregated API"].files), done: "nothing",
			want: "not checkable Thing NS/hat: discovery of kind Thing.NS.aggregated.example.com failed: stale " +
				"GroupVersion discovery: NS.aggregated.example.com/v1; APIService ...\n",
		},
		"policy that denies": {
			prepare: deny, files: one(red),
			want: "failed ConfigMap NS/it: UpdatePayloadResourceForbidden: configmaps \"it\" is forbidden: " +
				"ValidatingAdmissionPolicy 'NS' with binding 'NS' denied request: no hats\n",
		},
		"webhook with dry run": {
			prepare: noneOnDryRun, files: one(red), want: "created ConfigMap NS/it\n",
		},
	})
}

// asObstacle returns the preparation of a case whose object the server refuses until an administrator fixes the cause.
func (r retriedCase) asObstacle() func(*testing.T, string) {
	return func(t *testing.T, namespace string) {
		t.Helper()
		_ = r.prepare(t, namespace)
	}
}

// A webhook that does not support dry runs is not a failure of the preview. API servers no longer create such webhooks,
// and continue to call existing ones.
func TestPreviewWithAWebhookWithoutDryRun(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	must(t, run(t, t.Context(), load(t, namespace, namespace, one(red)), apply.Options{}).Err)
	create("bob", strings.Replace(red, "name: it", "name: old", 1))(t, namespace)
	config := answering(t, func(request *http.Request) (int, string) {
		isDry := request.URL.Query().Get("dryRun") != ""
		return http.StatusBadRequest,
			map[bool]string{true: `admission webhook "shop.example.com" does not support dry run: BadRequest`}[isDry]
	})
	files := one(blue+"\n---\n"+strings.Replace(red, "name: it", "name: new", 1)) + tombstoneFile
	saw := preview(t, t.Context(), config, load(t, namespace, namespace, files), apply.Options{})
	const why = ": a webhook that would be called does not support dry runs\n"
	want := "not checkable ConfigMap NS/it" + why + "not checkable ConfigMap NS/new" + why +
		"not checkable ConfigMap NS/old" + why
	if diff := cmp.Diff(want, saw.previewed(namespace)); diff != "" || saw.Err != nil {
		t.Error(saw.Err, diff)
	}
	if colour := saw.Changes[0].Look.Would.Object["data"]; fmt.Sprint(colour) != "map[colour:blue]" {
		t.Errorf("got previewed data %v, want the data of the release", colour)
	}
}

// answering returns a configuration whose requests are refused if refuse returns a message.
func answering(t *testing.T, refuse func(*http.Request) (code int, refusal string)) *rest.Config {
	t.Helper()
	return sandboxtest.Tap(test.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			code, refusal := refuse(request)
			if refusal == "" {
				return send.RoundTrip(request)
			}
			message, reason, _ := strings.Cut(refusal, ": ")
			body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`,
				reason, code, message)
			return &http.Response{
				StatusCode: code, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		})
}

// deny creates a policy that denies all ConfigMaps of a namespace.
func deny(t *testing.T, namespace string) { denyIn(t, namespace, namespace, nil) }

// denyIn creates a policy that denies the ConfigMaps of a namespace that have the labels.
func denyIn(t *testing.T, policy, namespace string, labels map[string]string) {
	t.Helper()
	registration := test.Client(t).AdmissionregistrationV1()
	_, err := registration.ValidatingAdmissionPolicies().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: policy},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{
					MatchLabels: labels,
				}, ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{"*"},
						Rule: admissionregistrationv1.Rule{
							APIGroups:   []string{""},
							APIVersions: []string{"v1"},
							Resources:   []string{"configmaps"},
						},
					},
				}}},
				Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no hats"}},
			},
		}, metav1.CreateOptions{})
	must(t, err)
	_, err = registration.ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: policy},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        policy,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
				}},
			},
		}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = registration.ValidatingAdmissionPolicyBindings().Delete(context.Background(), policy,
			metav1.DeleteOptions{})
		_ = registration.ValidatingAdmissionPolicies().Delete(context.Background(), policy, metav1.DeleteOptions{})
	})
	awaitRefusal(t, namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: labels}})
}

// The preview names missing rights. The release itself may contain the role that grants them.
func TestPreviewNamesTheMissingRight(t *testing.T) {
	for name, c := range map[string]struct {
		rules []rbacv1.PolicyRule
		files string
		want  string
	}{
		"patch": {
			[]rbacv1.PolicyRule{may("", "configmaps", "get", "list", "create")}, one(red),
			`failed ConfigMap NS/it: UpdatePayloadResourceForbidden: configmaps "it" is forbidden: User "USER" cannot patch resource "configmaps" in API group "" in the namespace "NS"` + "\n",
		},
		"create": {
			[]rbacv1.PolicyRule{may("", "serviceaccounts", "get", "list", "patch")},
			one(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: it, namespace: NS}}`),
			`failed ServiceAccount NS/it: UpdatePayloadResourceForbidden: serviceaccounts "it" is forbidden: User "USER" cannot create resource "serviceaccounts" in API group "" in the namespace "NS"` + "\n",
		},
		"delete": {
			[]rbacv1.PolicyRule{may("", "configmaps", "get", "list", "patch")}, tombstoneFile,
			`failed ConfigMap NS/old: UpdatePayloadResourceForbidden: configmaps "old" is forbidden: User "USER" cannot delete resource "configmaps" in API group "" in the namespace "NS"` + "\n",
		},
		"none: a binding to a new role": {
			[]rbacv1.PolicyRule{may("rbac.authorization.k8s.io", "*", "get", "list", "patch", "create"),
				may("", "pods", "get")},
			one(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: readers, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, subjects: [{kind: User, name: bob, apiGroup: rbac.authorization.k8s.io}]}`),
			"created Role NS/reader\ncreated RoleBinding NS/readers: it needs Role NS/reader, which is new, too\n",
		},
		"none: a broken binding to a new role": {
			[]rbacv1.PolicyRule{may("rbac.authorization.k8s.io", "*", "get", "list", "patch", "create"),
				may("", "pods", "get")},
			one(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: readers, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, subjects: [{kind: Robot, name: bob}]}`),
			"created Role NS/reader\nfailed RoleBinding NS/readers: UpdatePayloadResourceInvalid: subjects[0].kind: " +
				"Unsupported value: \"Robot\": supported values: " +
				"\"ServiceAccount\", \"User\", \"Group\" (by Kubernetes' own validation, as the cluster can't be " +
				"asked yet)\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			tombstoned{T: t, namespace: namespace}.bring(nil)
			restricted(t, namespace, c.rules...)
			config := rest.CopyConfig(test.Sandbox(t).Config)
			config.Impersonate.UserName = "somebody-" + namespace
			var got string
			want := strings.ReplaceAll(c.want, "USER", "somebody-NS")
			// The rights take effect in a moment.
			sandboxtest.Eventually(t, "the rights are not as wanted", func(context.Context) bool {
				release := load(t, namespace, namespace, c.files)
				got = preview(t, t.Context(), config, release,
					apply.Options{Options: object.Options{Refusals: knownRefusals(t, release)}}).previewed(namespace)
				return got == want || !strings.Contains(got, "cannot get")
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// manyFiles returns a payload of ConfigMaps.
func manyFiles(count int) string {
	var text strings.Builder
	for i := range count {
		name := "it-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		text.WriteString(strings.Replace(one(strings.Replace(red, "name: it", "name: "+name, 1)), "50_file", "50_"+name,
			1))
	}
	return text.String()
}

// The preview repeats requests that the server refuses with 429.
func TestPreviewRetriesRequestsToAnOverloadedServer(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	var refused atomic.Int32
	config := answering(t, func(request *http.Request) (int, string) {
		if request.Method == http.MethodPatch && refused.Add(1) <= 3 {
			return http.StatusTooManyRequests, "too much: TooManyRequests"
		}
		return 0, ""
	})
	saw := preview(t, t.Context(), config, load(t, namespace, namespace, one(red)), apply.Options{})
	if got := saw.previewed(namespace); got != "created ConfigMap NS/it\n" {
		t.Error(got)
	}
}

// If the server is unavailable, the remaining objects fail: they are not reported as "not checkable".
func TestPreviewFailsWithoutAServer(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	config := answering(t, func(request *http.Request) (int, string) {
		if request.Method == http.MethodPatch {
			return http.StatusServiceUnavailable, "no endpoints: ServiceUnavailable"
		}
		return 0, ""
	})
	saw := preview(t, t.Context(), config, load(t, namespace, namespace, one(red)), apply.Options{})
	if got := saw.previewed(namespace); got != "failed ConfigMap NS/it: UpdatePayloadClusterDown: no endpoints\n" ||
		saw.Err == nil {
		t.Error(saw.Err, got)
	}
}

// If the server refuses connections, a preview does not wait for each object.
func TestPreviewEndsIfTheServerRefusesConnections(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	var asked atomic.Int32
	config := sandboxtest.Before(test.Sandbox(t).Config, func(request *http.Request) error {
		if request.Method != http.MethodPatch {
			return nil
		}
		asked.Add(1)
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	})
	saw := preview(t, t.Context(), config, load(t, namespace, namespace, manyFiles(20)), apply.Options{Workers: 1})
	text := saw.previewed(namespace)
	first := "failed ConfigMap NS/it-aa: UpdatePayloadClusterDown: Patch \"https://"
	rest := strings.Count(text, ": the server gave no answer\n")
	if !strings.HasPrefix(text, first) || rest != 19 || asked.Load() > 10 || saw.Err == nil ||
		errors.Is(saw.Err, context.Canceled) {
		t.Errorf("%v, after %d requests: %s", saw.Err, asked.Load(), text)
	}
}

// An interrupted preview ends at once.
func TestPreviewEndsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int32
	config := answering(t, func(request *http.Request) (int, string) {
		if request.Method != http.MethodPatch {
			return 0, ""
		}
		asked.Add(1)
		cancel()
		<-request.Context().Done()
		return http.StatusServiceUnavailable, "no endpoints: ServiceUnavailable"
	})
	saw := preview(t, ctx, config, load(t, namespace, namespace, manyFiles(20)), apply.Options{Workers: 2})
	if !errors.Is(saw.Err, context.Canceled) || !strings.HasSuffix(saw.Err.Error(), ": 20 objects not applied") ||
		asked.Load() > 2 {
		t.Errorf("got error %v after %d requests, want at most 2", saw.Err, asked.Load())
	}
}

// If the server never answers, a preview ends after the timeout of an apply.
func TestPreviewEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	config := answering(t, func(request *http.Request) (int, string) {
		if request.Method == http.MethodPatch {
			<-request.Context().Done()
		}
		return 0, ""
	})
	saw := preview(t, t.Context(), config, load(t, namespace, namespace, one(red)), apply.Options{Timeout: time.Second})
	if got := saw.previewed(namespace); got != "not done ConfigMap NS/it: the time is up after 1s\n" ||
		!errors.Is(saw.Err, apply.ErrTimeout) {
		t.Error(saw.Err, got)
	}
}

// A preview of a tombstone reports the action of a run.
func TestPreviewOfATombstoneMatchesTheRun(t *testing.T) {
	for name, stands := range stands {
		for mode, story := range stands.want {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				g := newTombstoned(t)
				stands.prepare(g)
				want, _, _ := strings.Cut(strings.ReplaceAll(story, ": TIME", ": terminating for Ns"), "\n")
				switch name {
				case "its delete was requested, and it was deleted since":
					want = "absent" // state noted before the run
				case "it is held":
					want = "deleted: it stays terminating until these finalizers are removed: example.com/hold"
				}
				saw := preview(t, t.Context(), test.Sandbox(t).Config, g.release, apply.Options{Options: inMode(mode)})
				got, _, _ := strings.Cut(timeless(saw.previewed(g.namespace)), "\n")
				if diff := cmp.Diff(want, strings.Replace(got, " ConfigMap NS/old", "", 1)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// A preview sends at most two requests for each object: a get and a dry run. It sends none if no client can have
// changed the object.
func TestPreviewSendsFewRequests(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	var asked atomic.Int32
	config := answering(t, func(request *http.Request) (int, string) {
		if strings.Contains(request.URL.Path, "/configmaps/it-") {
			asked.Add(1)
		}
		return 0, ""
	})
	const count = 200
	requests := func(files string, mode graph.Mode) int32 {
		asked.Store(0)
		must(t, preview(t, t.Context(), config, load(t, namespace, namespace, files), apply.Options{
			Options: inMode(mode),
		}).Err)
		return asked.Load()
	}
	files := manyFiles(count)
	if got := requests(files, graph.Install); got > 2*count {
		t.Errorf("%d requests for %d new objects", got, count)
	}
	must(t, run(t, t.Context(), load(t, namespace, namespace, files), apply.Options{NoWait: true}).Err)
	if got := requests(files, graph.Reconcile); got > 0 {
		t.Errorf("%d requests for objects that can't have changed", got)
	}
	if got := requests(strings.ReplaceAll(files, "red", "blue"), graph.Update); got > 2*count {
		t.Errorf("%d requests for changed objects", got)
	}
}

// No value of a Secret is shown.
func TestPreviewShowsNoSecrets(t *testing.T) {
	for name, row := range secretRows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			if row.prepare != nil {
				row.prepare(t, namespace)
			}
			show := strings.NewReplacer("SECRET", secret, "ENCODED", encoded)
			if row.given != "" {
				change(t, namespace, "", show.Replace(row.given), apply.Options{NoWait: true})
			}
			saw := preview(t, t.Context(), test.Sandbox(t).Config,
				load(t, namespace, namespace, one(show.Replace(row.files))), apply.Options{})
			want := row.want
			if want != "" {
				want = "Secret NS/key" + where + want
			}
			if diff := cmp.Diff(want, saw.sentence(namespace)); diff != "" {
				t.Error(diff)
			}
			for _, value := range []string{"hunter2", encoded[:8]} {
				if text := saw.previewed(namespace); strings.Contains(text, value) {
					t.Errorf("%s is shown: %s", value, text)
				}
			}
		})
	}
}
