package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

// serveLocal serves the pages on a cluster that does not respond, and returns their access and their first address.
func serveLocal(t *testing.T) (*Server, *Local, string) {
	t.Helper()
	c, err := cluster.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	s := New(&pages.Site{Hub: live.New(live.Config{Cluster: c, Namespace: "shop"})}, nil)
	listening := httptest.NewUnstartedServer(nil)
	listening.Config = s.HTTP()
	listening.Start()
	t.Cleanup(func() {
		s.End("")
		listening.Close()
	})
	address, err := url.Parse(listening.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := address.Port()
	local := NewLocal(atoi(t, port))
	s.Access = local
	return s, local, listening.URL
}

func atoi(t *testing.T, text string) (number int) {
	t.Helper()
	for _, digit := range text {
		number = number*10 + int(digit-'0')
	}
	return number
}

func TestLocalAccess(t *testing.T) {
	_, local, base := serveLocal(t)
	_, other, _ := serveLocal(t)
	port := local.port
	cookie := func(name, value string) string { return "Cookie: " + name + "=" + value }
	own, others := "runlevel-"+port, "runlevel-"+other.port
	valid := cookie(own, local.secret)
	long := strings.Repeat("x", maxAddress)
	tests := map[string]struct {
		method, path string
		headers      []string // "Name: value"
		status       int
	}{
		"a cookie":                  {"GET", "/nothing", []string{valid}, 404},
		"nothing":                   {"GET", "/", nil, 401},
		"nothing, for events":       {"GET", "/events?page=/", nil, 401},
		"a wrong cookie":            {"GET", "/nothing", []string{cookie(own, other.secret)}, 401},
		"the token as cookie":       {"GET", "/nothing", []string{cookie(own, local.token)}, 401},
		"an empty cookie":           {"GET", "/nothing", []string{cookie(own, "")}, 401},
		"another instance's cookie": {"GET", "/nothing", []string{cookie(others, other.secret)}, 401},
		"both cookies":              {"GET", "/nothing", []string{valid, cookie(others, other.secret)}, 404},
		"a token":                   {"GET", "/nothing?token=" + local.token, nil, 200},
		"another instance's token":  {"GET", "/?token=" + other.token, nil, 401},
		"the cookie as token":       {"GET", "/?token=" + local.secret, nil, 401},
		"an empty token":            {"GET", "/?token=", nil, 401},
		"an old token and a cookie": {"GET", "/nothing?token=old", []string{valid}, 200},

		"localhost":                 {"GET", "/nothing", []string{valid, "Host: localhost:" + port}, 404},
		"IPv6":                      {"GET", "/nothing", []string{valid, "Host: [::1]:" + port}, 404},
		"a rebound name":            {"GET", "/nothing", []string{valid, "Host: evil.example:" + port}, 403},
		"a name like ours":          {"GET", "/nothing", []string{valid, "Host: localhost.evil.example:" + port}, 403},
		"a name with a dot":         {"GET", "/nothing", []string{valid, "Host: localhost.:" + port}, 403},
		"a host without a port":     {"GET", "/nothing", []string{valid, "Host: 127.0.0.1"}, 403},
		"a host with another port":  {"GET", "/nothing", []string{valid, "Host: 127.0.0.1:1"}, 403},
		"the host of all addresses": {"GET", "/nothing", []string{valid, "Host: 0.0.0.0:" + port}, 403},
		"a rebound name, for the stylesheet": {"GET", "/assets/style.css", []string{"Host: evil.example:" + port},
			403},
		"a rebound name with a token": {"GET", "/?token=" + local.token, []string{"Host: evil.example:" + port}, 403},

		"its own origin":             {"GET", "/nothing", []string{valid, "Origin: " + base}, 404},
		"another origin":             {"GET", "/nothing", []string{valid, "Origin: http://evil.example"}, 403},
		"another port":               {"GET", "/nothing", []string{valid, "Origin: http://127.0.0.1:1"}, 403},
		"the origin null":            {"GET", "/nothing", []string{valid, "Origin: null"}, 403},
		"another origin, for events": {"GET", "/events?page=/", []string{valid, "Origin: http://evil.example"}, 403},
		"a picture elsewhere": {"GET", "/nothing", []string{valid, "Sec-Fetch-Site: same-site",
			"Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}, 403},
		"a frame elsewhere": {"GET", "/nothing", []string{valid, "Sec-Fetch-Site: cross-site",
			"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403},
		"a link elsewhere": {"GET", "/nothing", []string{valid, "Sec-Fetch-Site: cross-site",
			"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 404},
		"a slash at the end": {"GET", "/releases/shop/web/", []string{valid}, 502},
		"events of a long address": {"HEAD", "/events?page=/?q=" + url.QueryEscape(strings.Repeat("ü", 500)),
			[]string{valid}, 200},

		"POST":              {"POST", "/", []string{valid}, 405},
		"PUT":               {"PUT", "/events?page=/", []string{valid}, 405},
		"DELETE":            {"DELETE", "/releases/shop/web", []string{valid}, 405},
		"OPTIONS":           {"OPTIONS", "/", []string{valid}, 405},
		"CONNECT":           {"TRACE", "/", []string{valid}, 405},
		"POST with nothing": {"POST", "/", nil, 401},
		"HEAD":              {"HEAD", "/nothing", []string{valid}, 404},

		"the stylesheet":   {"GET", "/assets/style.css", nil, 200},
		"the script":       {"GET", "/assets/page.js", nil, 200},
		"an icon":          {"GET", "/favicon.ico", nil, 200},
		"no listing":       {"GET", "/assets/", []string{valid}, 404},
		"a long address":   {"GET", "/" + long, []string{valid}, 414},
		"a long query":     {"GET", "/?q=" + long, []string{valid}, 414},
		"long headers":     {"GET", "/", []string{valid, "X-Long: " + strings.Repeat("x", maxHeader+8<<10)}, 431},
		"steps up":         {"GET", "/releases/../../etc/passwd", []string{valid}, 404},
		"escaped steps up": {"GET", "/releases/%2e%2e/x", []string{valid}, 404},
		"another host":     {"GET", "//evil.example/", []string{valid}, 404},

		"events of no page":         {"GET", "/events", []string{valid}, 404},
		"events of another host":    {"GET", "/events?page=//evil.example/", []string{valid}, 404},
		"events of a scheme":        {"GET", "/events?page=https://evil.example/", []string{valid}, 404},
		"events of a script":        {"GET", "/events?page=javascript:alert(1)", []string{valid}, 404},
		"events of a file":          {"GET", "/events?page=file:///etc/passwd", []string{valid}, 404},
		"events of steps up":        {"GET", "/events?page=/../etc", []string{valid}, 404},
		"events of escaped steps":   {"GET", "/events?page=/releases/%252e%252e/x", []string{valid}, 404},
		"events of a relative page": {"GET", "/events?page=releases", []string{valid}, 404},
		"events of a line break":    {"GET", "/events?page=/%0d%0ax", []string{valid}, 404},
		"HEAD of events":            {"HEAD", "/events?page=/", []string{valid}, 200},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := request(t, test.method, base+test.path, test.headers...)
			if answer.StatusCode != test.status {
				t.Errorf("%s, want %d", answer.Status, test.status)
			}
			if test.status == http.StatusRequestHeaderFieldsTooLarge {
				return // the library's answer
			}
			for header := range headers {
				if answer.Header.Get(header) == "" {
					t.Errorf("no %s", header)
				}
			}
			if test.status == http.StatusMethodNotAllowed && answer.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow: %q", answer.Header.Get("Allow"))
			}
			if text := read(t, answer); strings.Contains(text, local.secret) || strings.Contains(text, local.token) {
				t.Errorf("has a secret: %s", text)
			}
		})
	}
}

func request(t *testing.T, method, address string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func read(t *testing.T, answer *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(answer.Body)
	if err != nil && t.Context().Err() == nil && err != context.Canceled {
		t.Fatal(err)
	}
	return string(text)
}

// The token leads to the page without it, and is exchanged for a cookie that no script and no other site can use.
func TestTokenIsExchanged(t *testing.T) {
	_, local, base := serveLocal(t)
	for path, wanted := range map[string]string{
		"/releases/a/b":    "/releases/a/b",
		"//evil.example/":  "/evil.example/",
		"/\\evil.example/": "/%5Cevil.example/",
	} {
		answer := request(t, "GET", base+path+"?q=1&token="+local.token)
		if text := read(t, answer); !strings.Contains(text, `content="0; url=`+wanted+`?q=1"`) {
			t.Errorf("%s leads elsewhere: %s", path, text)
		}
		for _, wanted := range []string{"runlevel-" + local.port + "=", "Path=/", "HttpOnly", "SameSite=Strict"} {
			if cookie := answer.Header.Get("Set-Cookie"); !strings.Contains(cookie, wanted) {
				t.Errorf("cookie %s without %s", cookie, wanted)
			}
		}
	}
	link := request(t, "GET", base+"/cluster", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate",
		"Sec-Fetch-Dest: document")
	if text := read(t, link); link.StatusCode != 401 || !strings.Contains(text, `content="0; url=/cluster"`) {
		t.Errorf("a link on another site, without a cookie: %s: %s", link.Status, text)
	}
}

// Browsers omit the port 80.
func TestPort80(t *testing.T) {
	local := NewLocal(80)
	r := httptest.NewRequest("GET", local.Address("/"), http.NoBody)
	r.Host = r.URL.Hostname()
	answer := httptest.NewRecorder()
	if local.Admit(answer, r); answer.Code != 200 || r.URL.Port() != "" {
		t.Errorf("%s: %d", r.URL, answer.Code)
	}
}

// A connection does not wait for the body of a request.
func TestBodyIsNotAwaited(t *testing.T) {
	_, _, base := serveLocal(t)
	connection, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(connection, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\n",
		strings.TrimPrefix(base, "http://"))
	answer, err := io.ReadAll(connection)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
		t.Errorf("%s: %v", answer, err)
	}
}

// A browser asks for an asset again only by its tag.
func TestAssetsAreCached(t *testing.T) {
	_, _, base := serveLocal(t)
	first := request(t, "GET", base+"/assets/page.js")
	if again := request(t, "GET", base+"/assets/page.js",
		"If-None-Match: "+first.Header.Get("ETag")); again.StatusCode != 304 {
		t.Errorf("%s", again.Status)
	}
}
