package webserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// An apiServer answers reviews: it accepts tokens that are the names of users, and allows one user everything.
type apiServer struct {
	reviews int
	refuses bool // answers all with an error
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.reviews++
	w.Header().Set("Content-Type", "application/json")
	if s.refuses {
		http.Error(w, `{"kind": "Status", "apiVersion": "v1", "code": 403}`, http.StatusForbidden)
		return
	}
	if r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews" {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Authenticated = !strings.HasPrefix(review.Spec.Token, "garbage")
		review.Status.User.Username = review.Spec.Token
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	review.Status.Allowed = review.Spec.User == "prometheus" && review.Spec.NonResourceAttributes.Path == "/metrics" &&
		review.Spec.NonResourceAttributes.Verb == "get"
	_ = json.NewEncoder(w).Encode(review)
}

// TestUnknownTokensAreLimited: anyone can send many, and a token that was accepted before is still reviewed.
func TestUnknownTokensAreLimited(t *testing.T) {
	api := &apiServer{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	reviewer, err := NewReviewer(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{
		ContentType: "application/json"}}, time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	if user, err := reviewer.User(t.Context(), "anna"); user == nil || err != nil {
		t.Fatal(user, err)
	}
	for i := 0; err == nil; i++ {
		if _, err = reviewer.User(t.Context(), fmt.Sprintf("garbage-%d", i)); i > 1000 {
			t.Fatal("1000 unknown tokens were reviewed")
		}
	}
	if !errors.Is(err, ErrTooManyTokens) {
		t.Error(err)
	}
	if user, err := reviewer.User(t.Context(), "anna"); user == nil || err != nil {
		t.Errorf("a known token: %v %v", user, err)
	}
}

// TestWhoGetsMetrics: answers name the reason, and the API server is asked once in an interval.
func TestWhoGetsMetrics(t *testing.T) {
	api := &apiServer{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	reviewer, err := NewReviewer(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
		ContentType: "application/json"}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	handler := reviewer.protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "up 1")
	}))
	for _, test := range []struct {
		authorization string
		code, reviews int
		body          string
	}{
		{"", 401, 0, "Unauthorized\n"},
		{"Basic cHJvbWV0aGV1cw==", 401, 0, "Unauthorized\n"},
		{"Bearer garbage", 401, 1, "Unauthorized\n"},
		{"Bearer stranger", 403, 2, "Authorization denied for user stranger\n"},
		{"Bearer prometheus", 200, 2, "up 1"},
		{"bearer prometheus", 200, 0, "up 1"},
		{"Bearer stranger", 403, 0, "Authorization denied for user stranger\n"},
	} {
		api.reviews = 0
		request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		request.Header.Set("Authorization", test.authorization)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != test.code || answer.Body.String() != test.body || api.reviews != test.reviews {
			t.Errorf("%q: %d %q after %d reviews, want %d %q after %d", test.authorization, answer.Code, answer.Body,
				api.reviews, test.code, test.body, test.reviews)
		}
	}
	api.refuses = true
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Authorization", "Bearer another")
	answer := httptest.NewRecorder()
	if handler.ServeHTTP(answer, request); answer.Code != http.StatusInternalServerError {
		t.Errorf("without the right to review: %d %s", answer.Code, answer.Body)
	}
	for name := range maxAnswers + 10 {
		reviewer.answers.Add(name, true, time.Hour)
	}
	if got := len(reviewer.answers.Keys()); got > maxAnswers {
		t.Errorf("%d answers are remembered", got)
	}
}
