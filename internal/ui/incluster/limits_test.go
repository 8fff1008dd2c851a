package incluster

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// stream opens the stream of a page with a token. The returned function waits for an event with a text.
func (s *scene) stream(token, page string) func(want string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	s.Cleanup(cancel)
	request := s.request(http.MethodGet, "/events?"+url.Values{"page": {page}}.Encode(), nil).WithContext(ctx)
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := s.Client().Do(request)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewReader(answer.Body)
	return func(want string) {
		s.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				s.Fatalf("no event with %q: %v", want, err)
			}
			if data, isData := strings.CutPrefix(line, "data: "); isData {
				if !strings.Contains(data, want) {
					s.Errorf("want an event with %q: %s", want, data)
				}
				return
			}
		}
	}
}

// TestUsersDoNotSharePages: what one user has open is not sent to another one, who may not read it.
func TestUsersDoNotSharePages(t *testing.T) {
	s := begin(t, time.Second)
	s.release("shop")
	page := "/releases/" + s.namespace + "/shop"
	anna, ben := s.user("anna", mayGet(lock.Name("shop"))), s.user("ben")
	s.expect("the release", http.StatusOK, "shop", func() (int, string) { return s.get(anna, page) })
	s.expect("a refusal", http.StatusForbidden, "lacks the right", func() (int, string) { return s.get(ben, page) })
	s.stream(anna, page)("Release shop")
	s.stream(ben, page)("Not allowed")
}

// TestALostRightOnAReleaseCloses its open pages, a new stream does not get the page from an earlier one, and a granted
// right opens them again.
func TestALostRightOnAReleaseCloses(t *testing.T) {
	s := begin(t, 200*time.Millisecond)
	s.release("shop")
	page := "/releases/" + s.namespace + "/shop"
	token := s.user("anna", mayGet(lock.Name("shop")))
	s.expect("the release", http.StatusOK, "shop", func() (int, string) { return s.get(token, page) })
	next := s.stream(token, page)
	next("Release shop")
	bindings := test.Client(t).RbacV1().RoleBindings(s.namespace)
	binding, err := bindings.Get(t.Context(), "anna", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name}
	for range 2 { // the first time, a change of the record may still arrive
		if err := bindings.Delete(t.Context(), "anna", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		next("Not allowed")
		s.stream(token, page)("Not allowed")
		if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		next("Release shop")
	}
}

// TestASessionNeedsTheRight to get /ui: any token of the cluster could end the sessions of others otherwise. So could
// a user with many sessions.
func TestASessionNeedsTheRight(t *testing.T) {
	s := begin(t, time.Minute)
	anna, ben := s.user("anna"), s.user("ben")
	for _, token := range []string{anna, ben} {
		s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(token, "/") })
	}
	login := func(browser *http.Client, token string) int {
		code, _ := s.do(browser, s.request(http.MethodPost, "/login", url.Values{"token": {token}}))
		return code
	}
	stranger := s.browser()
	if code := login(stranger, test.Account(t, s.namespace, "stranger").BearerToken); code != http.StatusForbidden {
		t.Errorf("the login of a stranger: %d", code)
	}
	if location, _ := url.Parse(s.URL); len(stranger.Jar.Cookies(location)) > 0 {
		t.Error("a stranger has a session")
	}
	bens, annas := s.browser(), s.browser()
	login(bens, ben)
	login(annas, anna)
	for range maxSessions + 1 {
		login(s.browser(), anna)
	}
	for want, browser := range map[int]*http.Client{http.StatusOK: bens, http.StatusUnauthorized: annas} {
		if code, _ := s.do(browser, s.request(http.MethodGet, "/", nil)); code != want {
			t.Errorf("%d, want %d", code, want)
		}
	}
}

// TestOneUserCanNotUseUpTheServer with many pages and streams.
func TestOneUserCanNotUseUpTheServer(t *testing.T) {
	s := begin(t, time.Minute)
	anna, ben := s.user("anna"), s.user("ben")
	for _, token := range []string{anna, ben} {
		s.expect("the page", http.StatusOK, "Releases", func() (int, string) { return s.get(token, "/") })
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	var begun, refused atomic.Int32
	for i := range 1000 {
		group.Go(func() {
			request := s.request(http.MethodGet, "/events?page=%2F%3Fq%3D"+strconv.Itoa(i), nil).WithContext(ctx)
			request.Header.Set("Authorization", "Bearer "+anna)
			answer, err := s.Client().Do(request)
			if err != nil {
				return
			}
			defer answer.Body.Close()
			if begun.Add(1); answer.StatusCode == http.StatusServiceUnavailable {
				refused.Add(1)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
		})
	}
	sandboxtest.Eventually(t, "refusals", func(context.Context) bool { return refused.Load() > 500 })
	if code, text := s.get(ben, "/"); code != http.StatusOK {
		t.Errorf("the page of another user: %d %s", code, text)
	}
}
