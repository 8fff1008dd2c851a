package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A retriedCase is a manifest that a real server refuses for a while.
type retriedCase struct {
	prepare func(t *testing.T, namespace string) (repairIt func())
	files   string
	options apply.Options
	want    string // the reason and a part of the sentence of the first failure
}

const wherever = "attempt 1 failed, the next is in "

var retriedCases = map[string]retriedCase{
	"quota": {
		prepare: func(t *testing.T, namespace string) func() {
			quotas := test.Client(t).CoreV1().ResourceQuotas(namespace)
			_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "few"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"services": {}}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			sandboxtest.Eventually(t, "the quota is not computed", func(ctx context.Context) bool {
				quota, err := quotas.Get(ctx, "few", metav1.GetOptions{})
				return err == nil && len(quota.Status.Used) > 0
			})
			return func() { patch(t, quotas.Patch, "few", `{"spec": {"hard": {"services": "1"}}}`) }
		},
		files: `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {ports: [{port: 80}]}}`,
		want:  `UpdatePayloadResourceForbidden: services "web" is forbidden: exceeded quota: few, requested: services=1, used: services=0, limited: services=0`,
	},
	"terminating namespace": {
		prepare: func(t *testing.T, namespace string) func() {
			letGo := hold(t, namespace)
			return func() {
				letGo()
				made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-old"}}
				if _, err := test.Client(t).CoreV1().Namespaces().Create(t.Context(), made,
					metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		},
		files: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS-old}}`,
		want:  `UpdatePayloadResourceForbidden: configmaps "a" is forbidden: unable to create new content in namespace NS-old because it is being terminated`,
	},
	"terminating namespace of the release": {
		prepare: hold,
		files:   `{apiVersion: v1, kind: Namespace, metadata: {name: NS-old}}`,
		want:    `UpdatePayloadResourceConflict: it is terminating, and can be recreated only after that: terminating since `,
	},
	"missing namespace": {
		prepare: func(t *testing.T, namespace string) func() {
			return func() {
				made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-late"}}
				if _, err := test.Client(t).CoreV1().Namespaces().Create(t.Context(), made,
					metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		},
		files: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS-late}}`,
		want:  `UpdatePayloadResourceNotFound: namespaces "NS-late" not found`,
	},
	"missing service account": {
		prepare: func(t *testing.T, namespace string) func() {
			return func() {
				account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app"}}
				if _, err := test.Client(t).CoreV1().ServiceAccounts(namespace).Create(t.Context(), account,
					metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		},
		files: `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: NS}, spec: {serviceAccountName: app, containers: [{name: web, image: registry.example/web}]}}`,
		want:  `UpdatePayloadResourceForbidden: pods "web" is forbidden: error looking up service account NS/app: serviceaccount "app" not found`,
	},
	"unavailable webhook": {
		prepare: func(t *testing.T, namespace string) func() {
			server, up := late(t, answer(http.StatusOK, ""))
			webhook(t, namespace, server, 5)
			awaitRefusal(t, namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			return up
		},
		files: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}`,
		want:  `UpdatePayloadClusterError: Internal error occurred: failed calling webhook "shop.example.com": failed to call webhook: Post "https://`,
	},
	"webhook timeout": {
		prepare: func(t *testing.T, namespace string) func() {
			up := make(chan struct{})
			webhook(t, namespace, serve(t, func(w http.ResponseWriter, r *http.Request) {
				<-up
				answer(http.StatusOK, "")(w, r)
			}), 1)
			repairIt := sync.OnceFunc(func() { close(up) })
			t.Cleanup(repairIt)
			awaitRefusal(t, namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			return repairIt
		},
		files: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}`,
		want:  `UpdatePayloadClusterError: Internal error occurred: failed calling webhook "shop.example.com": failed to call webhook: Post "https://`,
	},
	"failing webhook": {
		prepare: func(t *testing.T, namespace string) func() {
			var isUp atomic.Bool
			webhook(t, namespace, serve(t, func(w http.ResponseWriter, r *http.Request) {
				if isUp.Load() {
					answer(http.StatusOK, "")(w, r)
				} else {
					http.Error(w, "out of order", http.StatusInternalServerError)
				}
			}), 5)
			awaitRefusal(t, namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			return func() { isUp.Store(true) }
		},
		files: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}}`,
		want:  `UpdatePayloadClusterError: Internal error occurred: failed calling webhook "shop.example.com": failed to call webhook: an error on the server ("out of order") has prevented the request from succeeding`,
	},
	"unavailable conversion webhook": {
		prepare: prepareConversion,
		files:   `{apiVersion: NS.example.com/v2, kind: Item, metadata: {name: hat, namespace: NS}}`,
		want:    `UpdatePayloadClusterError: conversion webhook for NS.example.com/v`,
	},
	"unavailable aggregated API": {
		prepare: prepareAggregated,
		files:   `{apiVersion: NS.aggregated.example.com/v1, kind: Thing, metadata: {name: hat, namespace: NS}}`,
		want:    `UpdatePayloadClusterDown: discovery of kind Thing.NS.aggregated.example.com failed: `,
	},
}

func TestTransientFailuresAreRetried(t *testing.T) {
	for name, row := range retriedCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			repairIt := sync.OnceFunc(row.prepare(t, namespace))
			options := row.options
			options.NoWait = true
			options.OnEvent = func(event apply.Event) {
				if event.Type == apply.Retrying {
					repairIt()
				}
			}
			did := change(t, namespace, "", row.files, options)
			if did.Err != nil {
				t.Fatal(did.Err)
			}
			retries := did.retries(namespace)
			if len(retries) == 0 {
				t.Fatal("the step was not retried")
			}
			cause, text, _ := strings.Cut(row.want, ": ")
			if !strings.HasPrefix(retries[0], cause+": "+wherever) || !strings.Contains(retries[0], "s: "+text) {
				t.Errorf("got failure\n%s\nwant\n%s", retries[0], row.want)
			}
		})
	}
}

// patch changes an object by a JSON merge patch.
func patch[T any](t *testing.T,
	with func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error), name,
	change string) {
	t.Helper()
	if _, err := with(t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// hold creates a terminating namespace NS-old. Its deletion ends when letGo is called.
func hold(t *testing.T, namespace string) (letGo func()) {
	t.Helper()
	core, old := test.Client(t).CoreV1(), namespace+"-old"
	if _, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: old}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:       "held",
		Finalizers: []string{"shop.example.com/hold"},
	}}
	if _, err := core.ConfigMaps(old).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := core.Namespaces().Delete(t.Context(), old, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = core.Namespaces().Delete(context.Background(), old, metav1.DeleteOptions{}) })
	return func() {
		patch(t, core.ConfigMaps(old).Patch, "held", `{"metadata": {"finalizers": null}}`)
		sandboxtest.Eventually(t, "the namespace still exists", func(ctx context.Context) bool {
			found, err := core.Namespaces().Get(ctx, old, metav1.GetOptions{})
			return err != nil || found.DeletionTimestamp == nil
		})
	}
}

// late returns a server that does not listen on its port until up is called.
func late(t *testing.T, handler http.HandlerFunc) (server *httptest.Server, up func()) {
	t.Helper()
	first := httptest.NewTLSServer(handler)
	address := first.Listener.Addr().String()
	first.Close()
	return first, func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		server := httptest.NewUnstartedServer(handler)
		_ = server.Listener.Close()
		server.Listener = listener
		server.StartTLS()
		t.Cleanup(server.Close)
	}
}

// prepareConversion defines a kind with an unavailable conversion webhook.
func prepareConversion(t *testing.T, namespace string) func() {
	const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: items.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Item, plural: items}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`
	if did := change(t, namespace, "", definition, apply.Options{NoWait: true}); did.Err != nil {
		t.Fatal(did.Err)
	}
	server, up := late(t, convert)
	certificate, _ := json.Marshal(certificateOf(server)) // never fails
	conversion := fmt.Sprintf(`{"spec": {"conversion": {"strategy": "Webhook", "webhook":
		{"conversionReviewVersions": ["v1"], "clientConfig": {"url": %q, "caBundle": %s}}}}}`, server.URL, certificate)
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/items." + namespace + ".example.com"
	if err := test.Client(t).CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body(
		[]byte(conversion),
	).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the kind is not served", func(ctx context.Context) bool {
		_, err := test.Client(t).Discovery().ServerResourcesForGroupVersion(namespace + ".example.com/v2")
		return err == nil
	})
	return up
}

// convert converts objects by changing their version only.
func convert(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Request    map[string]any `json:"request,omitempty"`
		Response   map[string]any `json:"response,omitempty"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	objects, _ := review.Request["objects"].([]any)
	for _, object := range objects {
		object.(map[string]any)["apiVersion"] = review.Request["desiredAPIVersion"]
	}
	review.Response = map[string]any{
		"uid":              review.Request["uid"],
		"convertedObjects": objects,
		"result":           map[string]any{"status": "Success"},
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// prepareAggregated registers an API whose server is down.
func prepareAggregated(t *testing.T, namespace string) func() {
	group := namespace + ".aggregated.example.com"
	server, up := late(t, aggregated(group))
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	files := strings.NewReplacer("PORT", port, "GROUP", group).Replace(`
apiVersion: v1
kind: Service
metadata: {name: aggregated, namespace: NS}
spec: {type: ExternalName, externalName: localhost, ports: [{port: PORT}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.GROUP}
spec:
  group: GROUP
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  service: {namespace: NS, name: aggregated, port: PORT}
  insecureSkipTLSVerify: true
`)
	if did := change(t, namespace, "", files, apply.Options{NoWait: true}); did.Err != nil {
		t.Fatal(did.Err)
	}
	sandboxtest.Eventually(t, "the API is not in the list", func(ctx context.Context) bool {
		_, lists, _ := test.Client(t).Discovery().ServerGroupsAndResources()
		groups, err := test.Client(t).Discovery().ServerGroups()
		return err == nil && lists != nil && strings.Contains(fmt.Sprint(groups), group)
	})
	return up
}

// aggregated serves an API of one kind that returns applied objects unchanged.
func aggregated(group string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis/"+group+"/v1":
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1",
				"resources":[{"name":"things","kind":"Thing","namespaced":true,"verbs":["get","list","patch","create"]}]}`, group)
		case r.Method == http.MethodPatch:
			w.WriteHeader(http.StatusCreated)
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":`+
				strconv.Itoa(http.StatusNotFound)+`}`)
		}
	}
}
