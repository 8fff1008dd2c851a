package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A listener is a receiver of notifications.
type listener struct {
	release
	url string

	mu  sync.Mutex
	all []notify.CloudEvent
}

func (r release) listen() *listener {
	l := &listener{release: r}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var event notify.CloudEvent
		if err := json.NewDecoder(request.Body).Decode(&event); err != nil {
			r.Error(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, event)
	}))
	r.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// notified has an apply send notifications, which have arrived when the function that it returns does.
func (l *listener) notified() (func(*session.Options), func()) {
	l.Helper()
	receiver, err := notify.ParseReceiver(l.url)
	if err != nil {
		l.Fatal(err)
	}
	sender := notify.NewSender(l.Context(), notify.Options{Receivers: []notify.Receiver{receiver}})
	return func(options *session.Options) { options.Notify = sender }, func() {
		if err := sender.Close(patience); err != nil {
			l.Error(err)
		}
	}
}

// roll applies a version, and expects the events that are sent, and written on the record.
func (l *listener) expect(version, files string, change func(*session.Options), want ...string) *session.Outcome {
	l.Helper()
	notified, arrived := l.notified()
	before := len(l.onRecord())
	l.all = nil
	outcome := l.roll(l.Context(), version, files, notified, change)
	arrived()
	var sent []string
	for _, event := range l.all {
		sent = append(sent, event.Type+": "+l.withoutTimes(event.Data.Text))
	}
	var wanted, recorded []string
	for _, text := range want {
		outcome, rest, _ := strings.Cut(text, " ")
		wanted, recorded = append(wanted, "dev.runlevel.release."+outcome+": "+rest),
			append(recorded, reasons[outcome]+": "+rest)
	}
	if diff := cmp.Diff(wanted, sent); diff != "" {
		l.Errorf("%s sends (-want +got)\n%s", version, diff)
	}
	if diff := cmp.Diff(recorded, append([]string(nil), l.onRecord()[before:]...)); diff != "" {
		l.Errorf("%s writes on the record (-want +got)\n%s", version, diff)
	}
	return outcome
}

var reasons = map[string]string{
	"begun": "Normal ReleaseBegun", "completed": "Normal ReleaseCompleted", "failed": "Warning ReleaseFailed",
	"blocked":    "Warning ReleaseBlocked",
	"rolledback": "Normal ReleaseRolledBack",
}

var timesAndUsers = regexp.MustCompile(` by \S+$| (in|after) [0-9.]+m?s\b| since \S+Z`)

// withoutTimes returns a text without what differs between runs.
func (r release) withoutTimes(text string) string {
	return timesAndUsers.ReplaceAllString(strings.ReplaceAll(text, r.namespace, "NS"), "")
}

// onRecord returns the events by which kubectl describes the record, in order.
func (r release) onRecord() []string {
	r.Helper()
	known, err := test.Client(r).CoreV1().ConfigMaps(r.namespace).Get(r.Context(), lock.Name(r.name),
		metav1.GetOptions{})
	if err != nil {
		return nil // there is no record yet
	}
	list, err := test.Client(r).CoreV1().Events(r.namespace).List(r.Context(), metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.kind=ConfigMap,involvedObject.name=%s,involvedObject.uid=%s",
			known.Name, known.UID),
	})
	if err != nil {
		r.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int {
		first, _ := strconv.Atoi(a.ResourceVersion)
		second, _ := strconv.Atoi(b.ResourceVersion)
		return first - second
	})
	var all []string
	for _, event := range list.Items {
		all = append(all, event.Type+" "+event.Reason+": "+r.withoutTimes(event.Message))
	}
	return all
}

const never = `
-- 0000_30_shop_10_never.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: never, namespace: NS, annotations: {runlevel.dev/ready: "self.data.ready == 'yes'"}}
`

// TestNotificationsOfAnApply checks the events on the record, and the notifications of receivers.
func TestNotificationsOfAnApply(t *testing.T) {
	t.Parallel()
	l := newRelease(t).listen()
	asIs := func(*session.Options) {}
	l.expect("1.0.0", settings+prices, asIs, "begun NS 1.0.0: install has begun",
		"completed NS 1.0.0: install completed: 2 created")
	if data := l.all[1].Data; data.Revision != 1 || data.By == "" || data.Seconds <= 0 ||
		data.Namespace != l.namespace || !strings.HasPrefix(l.all[1].Source, l.config.Host) {
		t.Errorf("the event is %+v", l.all[1])
	}
	l.expect("1.0.0", settings+prices, asIs)

	l.expect("1.1.0", settings+prices+never, func(o *session.Options) { o.Apply.Timeout = 3 * time.Second },
		"begun NS 1.0.0 → 1.1.0: update has begun",
		"failed NS 1.0.0 → 1.1.0: update failed: the time is up: 1 object not ready; ConfigMap NS/never: not ready: "+
			"self.data.ready == 'yes' is not true yet: no such key: data")
	if data := l.all[1].Data; len(data.Failures) != 1 || data.Failures[0].Name != "never" {
		t.Errorf("its failures are %+v", data.Failures)
	}
	back := func(o *session.Options) {
		o.Rollback, o.Apply.Mode = &record.Rollback{To: 1, From: 2, Version: "1.1.0"}, graph.Update
	}
	l.expect("1.0.0", settings+prices, back, "begun NS 1.1.0 → 1.0.0: rollback has begun",
		"rolledback NS 1.1.0 → 1.0.0: rolled back: 1 configured, 1 unchanged")

	maps := test.Client(t).CoreV1().ConfigMaps(l.namespace)
	hold := []byte(`{"metadata": {"finalizers": ["example.com/hold"]}}`)
	if _, err := maps.Patch(t.Context(), "settings", types.MergePatchType, hold, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.expect("1.0.1", settings, asIs,
		"blocked NS 1.0.0 → 1.0.1: update is blocked by TerminatingObject: ConfigMap NS/settings, which "+
			"0000_10_web_settings.yaml needs, is terminating, held by finalizer example.com/hold: it can be recreated "+
			"only after its deletion")
	if data := l.all[0].Data; !slices.Equal(data.Checks, []string{"TerminatingObject"}) || data.Revision != 0 {
		t.Errorf("the event is %+v", data)
	}
}

// TestARightToWriteEventsIsNotNeeded checks that a user without this right can apply a release.
func TestARightToWriteEventsIsNotNeeded(t *testing.T) {
	t.Parallel()
	user := newRelease(t)
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	user.config = test.Account(t, user.namespace, "user",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs},
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs},
	)
	awaitRights(t, user, settings)
	l := user.listen()
	notified, arrived := l.notified()
	outcome := user.must("1.0.0", settings, notified)
	if arrived(); len(l.all) != 2 || len(user.onRecord()) != 0 ||
		slices.ContainsFunc(outcome.Notes, func(note string) bool { return strings.Contains(note, "event") }) {
		t.Errorf("%d were sent, notes %q, events %q", len(l.all), outcome.Notes, user.onRecord())
	}
}

// TestNotificationsOfAReleaseThatIsKeptInPlace checks that an object is reported if it is not ready in time, and when
// it is ready again; and that a session that the user ends is not reported.
func TestNotificationsOfAReleaseThatIsKeptInPlace(t *testing.T) {
	t.Parallel()
	l := newRelease(t).listen()
	notified, arrived := l.notified()
	ctx, cancel := context.WithCancel(t.Context())
	outcomes := make(chan error, 9)
	go func() {
		if <-outcomes != nil {
			patch := []byte(`{"data": {"ready": "yes"}}`)
			if _, err := test.Client(t).CoreV1().ConfigMaps(l.namespace).Patch(ctx, "never", types.MergePatchType,
				patch, metav1.PatchOptions{FieldManager: "bob"}); err != nil {
				t.Error(err)
			}
			<-outcomes
		}
		cancel()
	}()
	l.roll(ctx, "1.0.0", settings+never, notified, func(o *session.Options) {
		o.Apply.Timeout = 2 * time.Second
		o.Keep = &keep.Options{}
		o.Observer = observer{onOutcome: func(outcome *session.Outcome) { outcomes <- outcome.Err }}
	})
	arrived()
	var got []string
	for _, event := range l.all {
		got = append(got, string(event.Data.Outcome))
	}
	if diff := cmp.Diff([]string{"begun", "failed", "completed"}, got); diff != "" {
		t.Errorf("sent notifications (-want +got)\n%s", diff)
	}
}

// TestNotificationsShowNoSecret checks an error in which the API server quotes a Secret.
func TestNotificationsShowNoSecret(t *testing.T) {
	t.Parallel()
	l := newRelease(t).listen()
	const planted = "48151623421"
	notified, arrived := l.notified()
	outcome := l.roll(t.Context(), "1.0.0", `
-- 0000_20_shop_20_secret.yaml --
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: NS}, stringData: {password: `+planted+`}}
`, notified)
	if arrived(); outcome.Err == nil {
		t.Fatal("the release was applied, want an error")
	}
	text, err := json.Marshal(l.all)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(text) + strings.Join(l.onRecord(), "\n")
	if strings.Count(shown, "Secret NS/key") != 1 || strings.Contains(shown, planted) {
		t.Errorf("the events and notifications show a Secret, or do not name it: %s", shown)
	}
}
