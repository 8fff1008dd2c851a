package apply_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/apply"
)

// secret is a value that no output may show. A server may quote the beginning of the value.
const secret = "hunter2-hunter2-hunter2"

var encoded = base64.StdEncoding.EncodeToString([]byte(secret))

const notShown = "; its message is not shown, since it may quote the Secret"

var secretRows = map[string]struct {
	given   string
	prepare func(t *testing.T, namespace string)
	files   string
	want    string
}{
	"immutable": {
		given: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, immutable: true, stringData: {password: old-SECRET}}`,
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, immutable: true, stringData: {password: SECRET}}`,
		want: `data can't be changed: keep the fields as they were, give the object another name and this one a tombstone, ` +
			`or allow to delete it and recreate it with the annotation runlevel.dev/recreate: "true"`,
	},
	"type that can't change": {
		given: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, type: SECRET, stringData: {password: SECRET}}`,
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, type: shop.example.com/key, stringData: {password: SECRET}}`,
		want: `type can't be changed: keep the fields as they were, give the object another name and this one a tombstone, ` +
			`or allow to delete it and recreate it with the annotation runlevel.dev/recreate: "true"`,
	},
	"wrong base64": {
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, data: {password: "SECRET!"}}`,
		want:  "the server refuses it with 500 (malformed)" + notShown,
	},
	"mapping for a value": {
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, data: {password: {is: SECRET}}}`,
		want:  "the server refuses it with 500 (malformed), for .data.password (expected string)" + notShown,
	},
	"value for a mapping": {
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, data: SECRET}`,
		want:  "the server refuses it with 500 (malformed), for .data (expected map)" + notShown,
	},
	"invalid": {
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: "SECRET"}}`,
		want: "the server refuses it with 422 Invalid (invalid), for data[.dockerconfigjson] (FieldValueInvalid)" +
			notShown,
	},
	"unknown field": {
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, strinData: {password: SECRET}}`,
		want:  "unknown field .strinData: correct or remove it, or drop unknown fields",
	},
	"webhook that quotes": {
		prepare: func(t *testing.T, namespace string) { quote(t, namespace, http.StatusForbidden, false) },
		files:   `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, stringData: {password: SECRET}}`,
		want:    "the server refuses it with 403 Forbidden (denied by a webhook)" + notShown,
	},
	"webhook that warns": {
		prepare: func(t *testing.T, namespace string) { quote(t, namespace, http.StatusOK, false) },
		files:   `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, stringData: {password: SECRET}}`,
	},
	"webhook that quotes in its reason and causes": {
		prepare: func(t *testing.T, namespace string) { quote(t, namespace, http.StatusForbidden, true) },
		files:   `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, stringData: {password: SECRET}}`,
		want:    "the server refuses it with 403 (denied by a webhook)" + notShown,
	},
	"values that only the cluster has": {
		prepare: func(t *testing.T, namespace string) {
			key := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "key"},
				StringData: map[string]string{"password": secret},
			}
			_, err := test.Client(t).CoreV1().Secrets(namespace).Create(t.Context(), key, metav1.CreateOptions{})
			must(t, err)
			quote(t, namespace, http.StatusForbidden, false)
		},
		files: `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS, labels: {a: b}}}`,
		want:  "the server refuses it with 403 Forbidden (denied by a webhook)" + notShown,
	},
}

func TestSecretsAreNeverShown(t *testing.T) {
	for name, row := range secretRows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := test.Namespace(t)
			if row.prepare != nil {
				row.prepare(t, namespace)
			}
			show := strings.NewReplacer("SECRET", secret, "ENCODED", encoded)
			did := change(t, namespace, show.Replace(row.given), show.Replace(row.files), apply.Options{NoWait: true})
			want := row.want
			if want != "" {
				want = "Secret NS/key" + where + want
			}
			if diff := cmp.Diff(want, did.sentence(namespace)); diff != "" {
				t.Error(diff)
			}
			reported, err := json.Marshal([]any{did.events, did.Waits, did.Warnings, did.record})
			if err != nil {
				t.Fatal(err)
			}
			all := fmt.Sprintf("%s\n%+v\n%+v\n%v", reported, did.Changes[0].Err, did.Changes[0].Message, did.Err)
			for _, value := range []string{"hunter2", encoded[:8]} {
				if strings.Contains(all, value) {
					t.Errorf("%s is shown:\n%s", value, all)
				}
			}
		})
	}
}

// quote installs a webhook that quotes each object in a refusal or in a warning. If isWhole is true, the refusal has
// the text in its reason and details instead of its message.
func quote(t *testing.T, namespace string, code int32, isWhole bool) {
	t.Helper()
	called := make(chan struct{}, 100)
	webhook(t, namespace, serve(t, func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var seen corev1.Secret
		_ = json.Unmarshal(review.Request.Object.Raw, &seen)
		text := fmt.Sprintf("seen %s in %s", seen.Data["password"], review.Request.Object.Raw)
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: code == http.StatusOK,
			Result:   &metav1.Status{Code: code, Message: text, Reason: metav1.StatusReasonForbidden},
			Warnings: []string{text},
		}
		if isWhole { // older frameworks for webhooks do this
			review.Response.Result.Message, review.Response.Result.Reason = "", metav1.StatusReason(text)
			review.Response.Result.Details = &metav1.StatusDetails{
				Causes: []metav1.StatusCause{{Type: metav1.CauseType(text), Field: text}},
			}
		}
		_ = json.NewEncoder(w).Encode(review)
		called <- struct{}{}
	}), 5)
	awaitCall(t, namespace, called)
}
