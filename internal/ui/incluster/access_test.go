package incluster

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A scene is a server of the pages on the releases of a cluster.
type scene struct {
	*testing.T
	*httptest.Server
	namespace string
}

// begin serves the pages. Tokens and rights are reviewed again after an interval.
func begin(t *testing.T, interval time.Duration) *scene {
	t.Helper()
	t.Parallel()
	connection := test.Sandbox(t).Config
	reviewer, err := webserver.NewReviewer(connection, interval)
	if err != nil {
		t.Fatal(err)
	}
	namespace := test.Namespace(t)
	pages := newServer(test.Connect(t), &access{reviewer: reviewer}, Options{Namespace: namespace})
	s := &scene{t, httptest.NewUnstartedServer(pages), namespace}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		pages.End("")
		s.Close()
	})
	return s
}

// user returns the token of a new service account, which may look, and has the rights of the rules in its namespace.
func (s *scene) user(name string, may ...rbacv1.PolicyRule) string {
	s.Helper()
	token := test.Account(s, s.namespace, name, may...).BearerToken
	s.bind(name)
	return token
}

// bind binds a service account to ClusterRole runlevel-ui, as it is installed.
func (s *scene) bind(account string) {
	s.Helper()
	for _, object := range install.Objects() {
		if object.GetKind() == "ClusterRole" && object.GetName() == "runlevel-ui" {
			sandboxtest.ApplyObject(s, test.Connect(s), object)
		}
	}
	_, err := test.Client(s).RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "runlevel-ui"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// release writes the record of a release in the namespace of the scene.
func (s *scene) release(name string) {
	s.Helper()
	err := record.NewStore(test.Client(s), s.namespace, name).Save(s.Context(), &record.Record{Release: name})
	if err != nil {
		s.Fatal(err)
	}
}

// get gets a page with a token.
func (s *scene) get(token, path string) (int, string) {
	s.Helper()
	request := s.request(http.MethodGet, path, nil)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return s.do(s.Client(), request)
}

func (s *scene) request(method, path string, form url.Values) *http.Request {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Origin", s.URL)
		request.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	return request
}

func (s *scene) do(client *http.Client, request *http.Request) (int, string) {
	s.Helper()
	answer, err := client.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// browser returns a client with a jar of cookies.
func (s *scene) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	client := *s.Client()
	client.Jar = jar
	return &client
}

// expect waits until a page has a status and a text: the API server applies rights after a moment.
func (s *scene) expect(what string, status int, want string, get func() (int, string)) {
	s.Helper()
	var last string
	sandboxtest.Eventually(s, what, func(context.Context) bool {
		code, text := get()
		last = text
		return code == status && strings.Contains(text, want)
	})
	if s.Failed() {
		s.Log(last)
	}
}

func mayGet(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"},
		ResourceNames: names}
}

// TestWhoMayLook: a token of the cluster and the right to get /ui, which a refusal names.
func TestWhoMayLook(t *testing.T) {
	s := begin(t, time.Second)
	for name, token := range map[string]string{"no token": "", "garbage": "garbage", "a foreign token": foreignToken} {
		if code, text := s.get(token, "/"); code != http.StatusUnauthorized || !strings.Contains(text, "Log in") ||
			strings.Contains(text, "Releases") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	stranger := test.Account(t, s.namespace, "stranger").BearerToken
	s.expect("a refusal with the command that grants the right", http.StatusForbidden,
		"kubectl create clusterrolebinding runlevel-ui --clusterrole=runlevel-ui --serviceaccount="+s.namespace+
			":stranger", func() (int, string) { return s.get(stranger, "/") })
	s.bind("stranger")
	s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(stranger, "/") })
	if code, text := s.get("", "/assets/style.css"); code != http.StatusOK {
		t.Errorf("the stylesheet of the login: %d %s", code, text)
	}
}

// foreignToken is the token of a service account of another cluster.
const foreignToken = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ." +
	"eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCIsInN1YiI6InN5c3RlbTpzZXJ2aWNlYWNjb3VudDpkZWZhdWx0OmRlZmF1bHQiLCJleHAiOjQxMDAwMDAwMDB9.c2lnbmF0dXJl"

// TestUsersSeeWhatTheyMayRead: only the releases whose records they may get.
func TestUsersSeeWhatTheyMayRead(t *testing.T) {
	s := begin(t, time.Second)
	s.release("shop")
	s.release("till")
	token := s.user("anna", mayGet(lock.Name("shop")))
	s.expect("the release", http.StatusOK, "shop", func() (int, string) { return s.get(token, "/") })
	_, text := s.get(token, "/")
	if strings.Contains(text, "till") || !strings.Contains(text, "not listed") {
		t.Error(text)
	}
	if code, text := s.get(token, "/releases/"+s.namespace+"/shop"); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	code, text := s.get(token, "/releases/"+s.namespace+"/till")
	for _, want := range []string{
		"lacks the right to get configmaps runlevel-release-till in namespace " + s.namespace,
		"kubectl create role get-configmaps-runlevel-release-till --verb=get --resource=configmaps " +
			"--resource-name=runlevel-release-till --namespace=" + s.namespace + " &amp;&amp; kubectl create " +
			"rolebinding get-configmaps-runlevel-release-till --role=get-configmaps-runlevel-release-till " +
			"--serviceaccount=" + s.namespace + ":anna --namespace=" + s.namespace,
	} {
		if code != http.StatusForbidden || !strings.Contains(text, want) {
			t.Errorf("%d %s\nwant %s", code, text, want)
		}
	}
}

// TestOnlyRecordsOfTheOperatorAreRead: the owner of another namespace could write one that names any object.
func TestOnlyRecordsOfTheOperatorAreRead(t *testing.T) {
	s := begin(t, time.Second)
	other := &scene{t, s.Server, test.Namespace(t)}
	other.release("forged")
	token := other.user("owner", mayGet(lock.Name("forged")))
	s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(token, "/") })
	if _, text := s.get(token, "/"); strings.Contains(text, "forged") {
		t.Error(text)
	}
	if code, text := s.get(token, "/releases/"+other.namespace+"/forged"); code != http.StatusNotFound {
		t.Errorf("%d %s", code, text)
	}
}

// TestTheObjectPageFollowsTheRightsOfTheUser: the operator may read all objects.
func TestTheObjectPageFollowsTheRightsOfTheUser(t *testing.T) {
	s := begin(t, time.Second)
	s.release("shop")
	_, err := test.Client(t).CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "password", Labels: map[string]string{"app": "of-the-till"}},
		StringData: map[string]string{"key": "open-sesame"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object := func(token, kind, name string) func() (int, string) {
		return func() (int, string) {
			return s.get(token, "/releases/"+s.namespace+"/shop/object?kind="+kind+"&namespace="+s.namespace+"&name="+
				name)
		}
	}
	reader, owner := s.user("anna", mayGet(lock.Name("shop"))), s.user("owner", rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	s.expect("a refusal that names the right", http.StatusOK, "lacks the right to get secrets password in namespace "+
		s.namespace, object(reader, "Secret", "password"))
	if _, text := object(reader, "Secret", "password")(); strings.Contains(text, "of-the-till") {
		t.Error(text)
	}
	s.expect("the Secret", http.StatusOK, "of-the-till", object(owner, "Secret", "password"))
	_, text := object(owner, "Secret", "password")()
	for _, value := range []string{"open-sesame", "b3Blbi1zZXNhbWU"} {
		if strings.Contains(text, value) {
			t.Errorf("the page has the value of a Secret: %s", text)
		}
	}
	// The owner of a namespace may read nothing elsewhere, although the address names the namespace.
	s.expect("a refusal for a cluster-scoped object", http.StatusOK,
		"lacks the right to get priorityclasses.scheduling.k8s.io system-cluster-critical.",
		object(owner, "PriorityClass.scheduling.k8s.io", "system-cluster-critical"))
}

// TestWhyFollowsTheRightsOfTheUser: the reasons are on pods and on other objects.
func TestWhyFollowsTheRightsOfTheUser(t *testing.T) {
	s := begin(t, time.Second)
	s.release("shop")
	awaitAccount(t, s.namespace)
	sandboxtest.Apply(t, test.Connect(t), `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: `+s.namespace+`}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: registry.example/web, envFrom: [{secretRef: {name: hidden}}]}]
`)
	pods := test.Client(t).CoreV1().Pods(s.namespace)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{
			{Name: "web", Image: "registry.example/web"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable, Message: "0/7 nodes are available"}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	page := "/releases/" + s.namespace + "/shop/object?kind=Deployment.apps&namespace=" + s.namespace + "&name=web"
	why := func(token string) (int, string) {
		code, text := s.get(token, page)
		_, text, _ = strings.Cut(text, `id="why"`)
		text, _, _ = strings.Cut(text, "</section>")
		return code, text
	}
	owner := s.user("owner", rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	carl := s.user("carl", mayGet(lock.Name("shop")), rbacv1.PolicyRule{
		APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"},
	})
	for _, want := range []string{"it needs Secret " + s.namespace + "/hidden", "0/7 nodes"} {
		s.expect(want, http.StatusOK, want, func() (int, string) { return why(owner) })
	}
	s.expect("the state", http.StatusOK, "not ready", func() (int, string) { return why(carl) })
	if _, text := why(carl); strings.Contains(text, "/hidden") || strings.Contains(text, "0/7") {
		t.Error(text)
	}
}

// TestALoginBeginsASession, which ends with a logout.
func TestALoginBeginsASession(t *testing.T) {
	s := begin(t, time.Minute)
	token := s.user("anna")
	s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(token, "/") })
	browser := s.browser()
	if code, text := s.do(browser, s.request(http.MethodGet, "/?q=shop", nil)); code != http.StatusUnauthorized ||
		!strings.Contains(text, `value="/?q=shop"`) {
		t.Errorf("the form: %d %s", code, text)
	}
	form := url.Values{"token": {token + "\n"}, "next": {"//evil.example/?q=shop"}}
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := browser.Transport.(*http.Transport).Clone()
	transport.ExpectContinueTimeout = time.Minute
	browser.Transport = transport
	login := s.request(http.MethodPost, "/login", form)
	login.Header.Set("Expect", "100-continue") // the form arrives after the header, as in a slow network
	answer, err := browser.Do(login)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := answer.Header.Get("Location"); got != "/evil.example/?q=shop" {
		t.Errorf("the login leads to %s", got)
	}
	cookie, port := answer.Header.Get("Set-Cookie"), s.URL[strings.LastIndex(s.URL, ":")+1:]
	for _, want := range []string{"__Host-runlevel-session-" + port + "=",
		"Path=/;", "HttpOnly", "Secure", "SameSite=Strict"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie has no %s: %s", want, cookie)
		}
	}
	if strings.Contains(cookie, token[:20]) {
		t.Error("the cookie has the token")
	}
	if code, text := s.do(browser, s.request(http.MethodGet, "/", nil)); code != http.StatusOK {
		t.Errorf("in the session: %d %s", code, text)
	}
	if code, text := s.do(browser, s.request(http.MethodGet, "/logout", nil)); code != http.StatusOK ||
		!strings.Contains(text, "system:serviceaccount:"+s.namespace+":anna") {
		t.Errorf("the form of the logout: %d %s", code, text)
	}
	forged := s.request(http.MethodGet, "/", nil)
	value, _, _ := strings.Cut(cookie, ";")
	forged.Header.Set("Cookie", value)
	if code, _ := s.do(browser, s.request(http.MethodPost, "/logout", url.Values{})); code != http.StatusSeeOther {
		t.Errorf("the logout: %d", code)
	}
	if code, text := s.do(s.Client(), forged); code != http.StatusUnauthorized {
		t.Errorf("the cookie after the logout: %d %s", code, text)
	}
}

// TestOtherSitesCanNotSendForms, and no request writes but login and logout.
func TestOtherSitesCanNotSendForms(t *testing.T) {
	s := begin(t, time.Minute)
	token := s.user("anna")
	form := url.Values{"token": {token}}
	for name, change := range map[string]func(*http.Request){
		"another origin": func(r *http.Request) {
			r.Header.Set("Origin", "https://evil.example")
			r.Header.Del("Sec-Fetch-Site")
		},
		"no origin": func(r *http.Request) {
			r.Header.Set("Origin", "null")
			r.Header.Del("Sec-Fetch-Site")
		},
		"another site": func(r *http.Request) {
			r.Header.Del("Origin")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
			r.Header.Set("Sec-Fetch-Dest", "document")
		},
	} {
		for _, path := range []string{"/login", "/logout"} {
			request := s.request(http.MethodPost, path, form)
			change(request)
			if code, text := s.do(s.browser(), request); code != http.StatusForbidden {
				t.Errorf("%s, %s: %d %s", name, path, code, text)
			}
		}
	}
	s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(token, "/") })
	request := s.request(http.MethodPost, "/", url.Values{})
	request.Header.Set("Authorization", "Bearer "+token)
	if code, text := s.do(s.Client(), request); code != http.StatusMethodNotAllowed {
		t.Errorf("a POST to a page: %d %s", code, text)
	}
	link := s.request(http.MethodGet, "/", nil)
	for name, value := range map[string]string{"Site": "cross-site", "Mode": "navigate", "Dest": "document"} {
		link.Header.Set("Sec-Fetch-"+name, value)
	}
	answer, err := s.Client().Do(link)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.Header.Get("Refresh") != "0" {
		t.Error("a link on another site, which comes without the cookie, is not opened again")
	}
}

// TestADeletedAccountNoLongerSees: its session and its open page end.
func TestADeletedAccountNoLongerSees(t *testing.T) {
	s := begin(t, 200*time.Millisecond)
	token := s.user("anna")
	s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(token, "/") })
	browser := s.browser()
	s.do(browser, s.request(http.MethodPost, "/login", url.Values{"token": {token}}))
	stream, err := browser.Do(s.request(http.MethodGet, "/events?page=%2F", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if line, err := bufio.NewReader(stream.Body).ReadString('\n'); err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %d %s %v", stream.StatusCode, line, err)
	}
	err = test.Client(t).CoreV1().ServiceAccounts(s.namespace).Delete(t.Context(), "anna", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stream.Body) // until the stream ends
	s.expect("the form", http.StatusUnauthorized, "Log in", func() (int, string) {
		return s.do(browser, s.request(http.MethodGet, "/", nil))
	})
}

// TestALostRightCloses a page that is open, and groups of a user count.
func TestALostRightCloses(t *testing.T) {
	s := begin(t, 200*time.Millisecond)
	token := s.user("anna")
	s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(token, "/") })
	request := s.request(http.MethodGet, "/events?page=%2F", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	stream, err := s.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	rbac := test.Client(t).RbacV1().ClusterRoleBindings()
	if err := rbac.Delete(t.Context(), s.namespace+"-anna", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stream.Body)
	if code, text := s.get(token, "/"); code != http.StatusForbidden {
		t.Errorf("%d %s", code, text)
	}
}

// Without the API server, the page reports that it can't review the token, and refuses the request.
func TestWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	reviewer, err := webserver.NewReviewer(&rest.Config{Host: "127.0.0.1:1"}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for method, path := range map[string]string{http.MethodGet: "/", http.MethodPost: "/login"} {
		request := httptest.NewRequest(method, path, strings.NewReader("token=a"))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if method == http.MethodGet {
			request.Header.Set("Authorization", "Bearer a")
		}
		answer := httptest.NewRecorder()
		if (&access{reviewer: reviewer}).Admit(answer, request) != nil || answer.Code != http.StatusBadGateway ||
			!strings.Contains(answer.Body.String(), "can&#39;t be reviewed") ||
			strings.Contains(answer.Body.String(), "127.0.0.1") { // nothing on the cluster before the admission
			t.Errorf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
	}
}

// TestRightsAreGrantedByCommands that name the right, without words that a shell would run.
func TestRightsAreGrantedByCommands(t *testing.T) {
	for _, test := range []struct {
		right      authorizationv1.ResourceAttributes
		user, want string
	}{
		{authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "shop"},
			"anna",
			"kubectl create role get-pods-log --verb=get --resource=pods/log --namespace=shop && kubectl create " +
				"rolebinding get-pods-log --role=get-pods-log --user=anna --namespace=shop"},
		{authorizationv1.ResourceAttributes{Verb: "get", Group: "config.openshift.io", Resource: "clusterversions"},
			"system:serviceaccount:shop:web",
			"kubectl create clusterrole get-clusterversions.config.openshift.io --verb=get " +
				"--resource=clusterversions.config.openshift.io && kubectl create clusterrolebinding " +
				"get-clusterversions.config.openshift.io --clusterrole=get-clusterversions.config.openshift.io " +
				"--serviceaccount=shop:web"},
		{authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Name: "$(reboot)", Namespace: "`a`"},
			"anna; reboot",
			"kubectl create role 'get-secrets-$(reboot)' --verb=get --resource=secrets '--resource-name=$(reboot)' " +
				"'--namespace=`a`' && kubectl create rolebinding 'get-secrets-$(reboot)' " +
				"'--role=get-secrets-$(reboot)' " +
				"'--user=anna; reboot' '--namespace=`a`'"},
	} {
		if got := grant(test.right, test.user); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
	}
}

// TestTheProxyOfTheDocumentation can be applied, and its namespace admits its pods.
func TestTheProxyOfTheDocumentation(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	awaitAccount(t, namespace)
	for _, section := range sandboxtest.ReadPage(t, "../../../docs/ui-cluster.md") {
		text, found := section.Files["oauth2-proxy.yaml"]
		if !found {
			continue
		}
		for manifest := range strings.SplitSeq(strings.ReplaceAll(text, "runlevel-proxy", namespace), "---\n") {
			object := sandboxtest.Apply(t, test.Connect(t), manifest)
			if object.GetKind() != "Deployment" {
				continue
			}
			var deployment appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
				t.Fatal(err)
			}
			_, err := test.Client(t).CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "proxy"}, Spec: deployment.Spec.Template.Spec,
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Error(err)
			}
		}
		return
	}
	t.Error("the page has no proxy")
}

// awaitAccount waits until the cluster has created the service account of a new namespace: pods need it.
func awaitAccount(t *testing.T, namespace string) {
	t.Helper()
	sandboxtest.Eventually(t, "the account of the namespace", func(ctx context.Context) bool {
		_, err := test.Client(t).CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

// TestAWrongAddressDoesNotEndTheOperator, which would keep nothing in place then.
func TestAWrongAddressDoesNotEndTheOperator(t *testing.T) {
	options := Options{Serving: webserver.Serving{Address: "8443"}}
	if err := Serve(t.Context(), nil, &rest.Config{Host: "127.0.0.1:1"}, options); err != nil {
		t.Error(err)
	}
}
