package updateservice_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/operator/updateservice"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/internal/updates/phase"
)

// queryOf returns a query for a server.
func queryOf(server *httptest.Server) updateservice.Query {
	return updateservice.Query{
		URL: server.URL + "/graph?tenant=shop", Channel: "stable", Version: "1.0.0", Architecture: "amd64",
		ClusterID: "an-id", Insecure: true,
	}
}

// answering returns a server that answers a text, with digests in place of words like @a.
func answering(t *testing.T, text string) *httptest.Server {
	t.Helper()
	for _, digit := range "abcdef" {
		text = strings.ReplaceAll(text, "@"+string(digit), image(string(digit)))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
	t.Cleanup(server.Close)
	return server
}

func image(digit string) string { return "r.example/shop@sha256:" + strings.Repeat(digit, 64) }

func TestQueryOfTheUpdateService(t *testing.T) {
	var got *http.Request
	server := answering(t, `{
		"nodes": [
			{"version": "1.0.1", "payload": "@b", "metadata": {"url": "https://example.com/1.0.1", "other": "thing"}},
			{"version": "1.0.0", "payload": "@a", "metadata": {"io.openshift.upgrades.graph.release.channels": "stable,fast,stable"}},
			{"version": "1.0.10", "payload": "@c"},
			{"version": "1.1.0", "payload": "@d"}
		],
		"edges": [[1, 0], [1, 2], [0, 2], [1, 3], [1, 1], [1, 0]],
		"conditionalEdges": [{
			"edges": [{"from": "1.0.0", "to": "1.1.0"}, {"from": "1.0.1", "to": "1.0.10"}],
			"risks": [{"name": "SlowDisks", "url": "https://example.com/disks", "message": "Slow\ndisks", "conditions": [{}],
				"matchingRules": [{"type": "New"}, {"type": "PromQL", "promql": {"promql": "up"}}, {"type": "Always"}]}]
		}]
	}`)
	inner := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		inner.ServeHTTP(w, r)
	})
	offer, err := updateservice.Fetch(t.Context(), server.Client(), queryOf(server))
	if err != nil {
		t.Fatal(err)
	}
	want := &clusterversion.Offer{
		Current: configv1.Release{Version: "1.0.0", Image: image("a"), Channels: []string{"fast", "stable"}},
		Updates: []configv1.Release{{Version: "1.0.10", Image: image("c")},
			{Version: "1.0.1", Image: image("b"), URL: "https://example.com/1.0.1"}},
		Conditional: []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.1.0", Image: image("d")},
			Risks: []configv1.ConditionalUpdateRisk{{
				Name: "SlowDisks", URL: "https://example.com/disks", Message: `Slow\ndisks`,
				MatchingRules: []configv1.ClusterCondition{{
					Type:   "PromQL",
					PromQL: &configv1.PromQLClusterCondition{PromQL: "up"},
				}, {Type: "Always"}},
			}}}},
	}
	if diff := cmp.Diff(want, offer); diff != "" {
		t.Errorf("the offer (-want +got):\n%s", diff)
	}
	if got.URL.RawQuery != "arch=amd64&channel=stable&id=an-id&tenant=shop&version=1.0.0" ||
		got.Header.Get("Accept") != "application/json" {
		t.Errorf("asked %s, %v", got.URL, got.Header)
	}
}

// TestGraphInARegistry reads the graph of a channel from files in a registry.
func TestGraphInARegistry(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	location, err := oci.ParseTarget(registry.Host+"/shop/updates:latest", "", true)
	if err != nil {
		t.Fatal(err)
	}
	target, err := oci.Create(t.Context(), location, oci.Options{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	graph := fmt.Sprintf(`{"nodes": [{"version": "1.0.0", "payload": %q}, {"version": "1.0.1", "payload": %q}],
		"edges": [[0, 1]]}`, image("a"), image("b"))
	files := map[string][]byte{"stable/amd64.json": []byte(graph), "index.json": []byte("{}")}
	if err := oci.PutFiles(t.Context(), target, "application/vnd.runlevel.update-graphs", files, "latest"); err != nil {
		t.Fatal(err)
	}
	query := updateservice.Query{
		URL: "oci://" + location.String(), Channel: "stable", Version: "1.0.0", Architecture: "amd64", Insecure: true,
	}
	offer, err := updateservice.Fetch(t.Context(), http.DefaultClient, query)
	if err != nil || len(offer.Updates) != 1 || offer.Updates[0].Version != "1.0.1" {
		t.Errorf("got %+v, %v", offer, err)
	}
	for want, change := range map[string]func(*updateservice.Query){
		"VersionNotFound": func(q *updateservice.Query) { q.Version = "1.0.7" },
		"ResponseFailed: " + location.String() + " has no graph of channel \"fast\"": func(q *updateservice.Query) {
			q.Channel = "fast"
		},
		"RemoteFailed: read " + registry.Host + "/shop/other:latest: ": func(q *updateservice.Query) {
			q.URL = "oci://" + registry.Host + "/shop/other:latest"
		},
		"InvalidURI: spec.upstream is not an image reference": func(q *updateservice.Query) {
			q.URL = "oci://shop/updates"
		},
	} {
		_, err := updateservice.Fetch(t.Context(), http.DefaultClient, with(query, change))
		if got := fmt.Sprintf("%s: %v", reason.Of(err), err); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestOmittedUpdates offers a valid update, and an invalid one.
func TestOmittedUpdates(t *testing.T) {
	const risk = `"risks": [{"name": "Disks", "url": "https://example.com", "message": "slow", "matchingRules": [{"type": "Always"}]}]`
	build := func(rest string) string {
		return `, "conditionalEdges": [{"edges": [{"from": "1.0.0", "to": "2.0.0"}], ` + rest + `}]`
	}
	phased := func(rest string) string {
		return `, "phasedEdges": [{"edges": [{"from": "1.0.0", "to": "2.0.0"}]` + rest + `}]`
	}
	for what, c := range map[string]struct{ nodes, rest, want string }{
		"a tag": {`{"version": "2.0.0", "payload": "r.example/shop:2.0.0"}`, "",
			`2.0.0: its image "r.example/shop:2.0.0" is not named by digest`},
		"a path":     {`{"version": "2.0.0", "payload": "/etc"}`, "", `2.0.0: its image "/etc" is not named by digest`},
		"no image":   {`{"version": "2.0.0"}`, "", `2.0.0: its image "" is not named by digest`},
		"no version": {`{"version": "two", "payload": "@c"}`, "", "two: not a semantic version"},
		"a long version": {`{"version": "` + strings.Repeat("2", 9999) + `", "payload": "@c"}`, "",
			strings.Repeat("2", 197) + "…: not a semantic version"},
		"two images": {`{"version": "2.0.0", "payload": "@c"}, {"version": "2.0.0", "payload": "@d"}`, "",
			"2.0.0: the update service has several images for this version"},
		"two kinds of risks": {`{"version": "2.0.0", "payload": "@c"}`,
			build(risk + `}, {"edges": [{"from": "1.0.0", "to": "2.0.0"}], ` + risk),
			"2.0.0: the update service offers it with different risks"},
		"risks that are none": {`{"version": "2.0.0", "payload": "@c"}`, build(`"risks": []`),
			"2.0.0: its risks can't be read: there must be 1 to 200"},
		"risks that are numbers": {`{"version": "2.0.0", "payload": "@c"}`, build(`"risks": [1]`),
			"2.0.0: its risks can't be read: there must be 1 to 200"},
		"a risk without a name": {`{"version": "2.0.0", "payload": "@c"}`, build(strings.Replace(risk, "Disks", "", 1)),
			`2.0.0: its risk "" needs a name of its own, a message and a URL`},
		"a risk without a link": {`{"version": "2.0.0", "payload": "@c"}`,
			build(strings.Replace(risk, "https://example.com", "here", 1)),
			`2.0.0: its risk "Disks" needs a name of its own, a message and a URL`},
		"a risk with a long name": {`{"version": "2.0.0", "payload": "@c"}`,
			build(strings.Replace(risk, "Disks", strings.Repeat("Disks", 52), 1)),
			`2.0.0: the name of its risk "DisksDisks`},
		"a risk of unknown rules": {`{"version": "2.0.0", "payload": "@c"}`,
			build(strings.Replace(risk, "Always", "Never", 1)),
			`2.0.0: its risk "Disks" has no matching rule of a known type`},
		"a large risk": {`{"version": "2.0.0", "payload": "@c"}`,
			build(strings.Replace(risk, "slow", strings.Repeat("slow", 200_000), 1)),
			"2.0.0: a ClusterVersion has no room for it"},
		"two phases": {`{"version": "2.0.0", "payload": "@c"}`,
			phased(`}, {"edges": [{"from": "1.0.0", "to": "2.0.0"}]`), "2.0.0: the update service offers it in several phases"},
		"a phase with bad risks": {`{"version": "2.0.0", "payload": "@c"}`, phased(`, "risks": [{}]`),
			`2.0.0: its risk "" needs a name of its own, a message and a URL`},
		"a ramp over 100 %": {`{"version": "2.0.0", "payload": "@c"}`,
			phased(`, "ramp": {"start": "2026-12-01T08:00:00Z", "percentage": 101}`),
			"2.0.0: its phase can't be read: ramp: percentage 101 is not between 0 and 100"},
		"a ring without a start": {`{"version": "2.0.0", "payload": "@c"}`, phased(`, "rings": {"late": {"percentage": 1}}`),
			`2.0.0: its phase can't be read: ring "late": a ramp with a percentage or a duration needs a start`},
		"a start without a date": {`{"version": "2.0.0", "payload": "@c"}`, phased(`, "ramp": {"start": "soon"}`),
			"2.0.0: its phase can't be read: parsing time"},
		"many rings": {`{"version": "2.0.0", "payload": "@c"}`,
			phased(`, "rings": {"` + strings.Repeat("late", 20_000) + `": {}}`),
			"2.0.0: its phase can't be read: rings are longer than 64 KiB"},
		"many first clusters": {`{"version": "2.0.0", "payload": "@c"}`,
			phased(`, "first": [""` + strings.Repeat(`,""`, 50_000) + `]`),
			"2.0.0: its phase can't be read: a list has more than 50000 items"},
	} {
		graph := `{"nodes": [{"version": "1.0.0"}, {"version": "1.0.1", "payload": "@b"}, ` + c.nodes +
			`], "edges": [[0, 1], [0, 2]]` + c.rest + `}`
		server := answering(t, graph)
		offer, err := updateservice.Fetch(t.Context(), server.Client(), queryOf(server))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if len(offer.Updates) != 1 || offer.Updates[0].Version != "1.0.1" || len(offer.Conditional) != 0 {
			t.Errorf("%s: got updates %.300v and conditional updates %.300v", what, offer.Updates, offer.Conditional)
		}
		if len(offer.LeftOut) != 1 || !strings.HasPrefix(offer.LeftOut[0], c.want) || len(offer.LeftOut[0]) > 400 {
			t.Errorf("%s: left out %.500q", what, offer.LeftOut)
		}
	}
}

// TestPhasedUpdates: an update in phases is not among those that are open for all, also if another edge leads to it.
func TestPhasedUpdates(t *testing.T) {
	server := answering(t, `{
		"nodes": [{"version": "1.0.0"}, {"version": "1.0.1", "payload": "@b"}, {"version": "1.1.0", "payload": "@c"}],
		"edges": [[0, 1]],
		"conditionalEdges": [{"edges": [{"from": "1.0.0", "to": "1.1.0"}], "risks": [
			{"name": "Disks", "url": "https://example.com", "message": "slow", "matchingRules": [{"type": "Always"}]}]}],
		"phasedEdges": [{
			"edges": [{"from": "1.0.0", "to": "1.0.1"}, {"from": "1.0.0", "to": "1.1.0"}],
			"first": ["an-id"], "ramp": {"start": "2026-12-01T08:00:00Z", "percentage": 5, "duration": "48h"},
			"rings": {"late": {}}, "halt": "3 of 40\nfailed", "later": true}]}`)
	offer, err := updateservice.Fetch(t.Context(), server.Client(), queryOf(server))
	if err != nil {
		t.Fatal(err)
	}
	if len(offer.Updates)+len(offer.Conditional)+len(offer.LeftOut) != 0 || len(offer.Phased) != 2 {
		t.Fatalf("the offer is %+v", offer)
	}
	minor, patch := offer.Phased[0], offer.Phased[1]
	if minor.Release.Version != "1.1.0" || len(minor.Risks) != 1 || patch.Release.Version != "1.0.1" ||
		patch.Risks != nil {
		t.Errorf("the phased updates are %+v", offer.Phased)
	}
	want := phase.Phase{
		First: []string{"an-id"}, Halt: `3 of 40\nfailed`, Rings: map[string]phase.Ramp{"late": {}},
		Ramp: phase.Ramp{
			Start:      metav1.NewTime(time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)),
			Percentage: 5, Duration: metav1.Duration{Duration: 48 * time.Hour},
		},
	}
	if diff := cmp.Diff(want, patch.Phase); diff != "" {
		t.Errorf("the phase (-want +got):\n%s", diff)
	}
}

// TestInvalidAnswers sends requests to services that are down, never answer, or send wrong or too much data.
func TestInvalidAnswers(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("channel") {
		case "broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "page":
			fmt.Fprint(w, "<html>\x1b[2J")
		case "torn":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
		case "endless":
			for chunk := strings.Repeat(" ", 1<<20); r.Context().Err() == nil; {
				fmt.Fprint(w, chunk)
			}
		case "astray":
			fmt.Fprint(w, `{"nodes": [{"version": "1.0.0"}], "edges": [[0, 7]]}`)
		case "half":
			fmt.Fprint(w, `{"nodes": [{"version": "1.0.0"}], "edges": [[0]]}`)
		case "many":
			fmt.Fprint(w, `{"nodes": [{}`+strings.Repeat(",{}", 60_000)+`]}`)
		case "slow":
			<-r.Context().Done()
		case "circle":
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		default:
			fmt.Fprint(w, `{"nodes": null}`)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(server.Close)
	build := func(channel string) updateservice.Query {
		query := queryOf(server)
		query.Channel = channel
		return query
	}
	away := build("stable")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away.URL = "http://user:secret@" + listener.Addr().String()
	listener.Close()
	const notAService = "spec.upstream is not the URL of a service: write https://HOST/PATH, or " +
		"oci://REGISTRY/REPOSITORY:TAG"
	address, query := server.Listener.Addr().String(), build("stable")
	for what, c := range map[string]struct {
		query        updateservice.Query
		reason, want string
	}{
		"no service": {updateservice.Query{}, "NoUpstream",
			"no update service is configured: set spec.upstream to its URL, and spec.channel to one of its channels"},
		"a file": {with(query, func(q *updateservice.Query) { q.URL = "file:///etc/passwd" }), "InvalidURI",
			notAService},
		"no URL": {with(query, func(q *updateservice.Query) { q.URL = "http://a b:x" }), "InvalidURI",
			notAService},
		"plain http": {with(query, func(q *updateservice.Query) { q.Insecure = false }), "InvalidURI",
			"spec.upstream is of plain http, where anyone on the way could offer an image: use https, or start the " +
				"operator with --insecure-registry"},
		"no version": {with(query, func(q *updateservice.Query) { q.Version = "" }), "NoCurrentVersion",
			"the release has no version"},
		"no channel": {with(query, func(q *updateservice.Query) { q.Channel = "" }), "NoChannel",
			"no channel is configured: set spec.channel to one of the update service"},
		"no semantic version": {with(query, func(q *updateservice.Query) { q.Version = "one" }),
			"InvalidCurrentVersion", `the version "one" of the release is not a semantic version`},
		"away": {away, "RemoteFailed", strings.TrimPrefix(away.URL, "http://user:secret@") +
			" can't be reached: nothing answers there (connection refused)"},
		"redirects for ever": {build("circle"), "RemoteFailed",
			address + " can't be reached: stopped after 10 redirects"},
		"broken":             {build("broken"), "ResponseFailed", address + " answers 500 Internal Server Error"},
		"ends in the middle": {build("torn"), "ResponseFailed", "read the answer of " + address + ": unexpected EOF"},
		"never ends": {build("endless"), "ResponseFailed",
			address + " answers with more than 8 MiB, which is the limit"},
		"a page": {build("page"), "ResponseInvalid",
			"the response is not an update graph: invalid character '<' looking for beginning of value"},
		"an edge to no node": {build("astray"), "ResponseInvalid",
			"the response is not an update graph: an edge has no node"},
		"half an edge": {build("half"), "ResponseInvalid", "the response is not an update graph: an edge has no node"},
		"more than it can use": {build("many"), "ResponseInvalid",
			"the response is not an update graph: a list has more than 50000 items, which is the limit"},
		"unknown": {build("fast"), "VersionNotFound",
			`the update service does not know version 1.0.0 in channel "fast"`},
	} {
		offer, err := updateservice.Fetch(t.Context(), server.Client(), c.query)
		if offer != nil || reason.Of(err) != c.reason || err.Error() != c.want {
			t.Errorf("%s: %s, %v\nwant %s, %s", what, reason.Of(err), err, c.reason, c.want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := updateservice.Fetch(ctx, server.Client(), build("slow")); reason.Of(err) != "RemoteFailed" ||
		err.Error() != address+" can't be reached: no answer in time" {
		t.Errorf("slow: %v", err)
	}
}

func with(query updateservice.Query, change func(*updateservice.Query)) updateservice.Query {
	change(&query)
	return query
}

// An offer of more updates than a ClusterVersion can list has the newest.
func TestMoreUpdatesThanCanBeListed(t *testing.T) {
	nodes, edges := []string{`{"version": "1.0.0"}`}, []string{}
	for i := 1; i <= 600; i++ {
		nodes = append(nodes, fmt.Sprintf(`{"version": "1.0.%d", "payload": "@b"}`, i))
		edges = append(edges, fmt.Sprintf("[0, %d]", i))
	}
	slices.Reverse(edges)
	server := answering(t, `{"nodes": [`+strings.Join(nodes, ",")+`], "edges": [`+strings.Join(edges, ",")+`]}`)
	offer, err := updateservice.Fetch(t.Context(), server.Client(), queryOf(server))
	if err != nil {
		t.Fatal(err)
	}
	if len(offer.Updates) != 500 || offer.Updates[0].Version != "1.0.600" || len(offer.LeftOut) != 100 ||
		offer.LeftOut[0] != "1.0.100: a ClusterVersion has no room for it" {
		t.Errorf("%d updates, the first %s; %d left out: %.100q", len(offer.Updates), offer.Updates[0].Version,
			len(offer.LeftOut), offer.LeftOut)
	}
}

// TestClockThatIsAhead: the Date of a response corrects the clock of a cluster, but not if the response was cached.
func TestClockThatIsAhead(t *testing.T) {
	for headers, want := range map[[2]string]time.Duration{
		{"-24h", ""}: 24 * time.Hour, {"-24h", "86400"}: 0, {"-24h", "3600"}: 23 * time.Hour, {"-10s", ""}: 0,
		{"24h", ""}: 0, {"", ""}: 0,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Date"] = nil
			if offset, err := time.ParseDuration(headers[0]); err == nil {
				w.Header().Set("Date", time.Now().Add(offset).UTC().Format(http.TimeFormat))
			}
			w.Header().Set("Age", headers[1])
			fmt.Fprint(w, `{"nodes": [{"version": "1.0.0", "payload": "x"}]}`)
		}))
		offer, err := updateservice.Fetch(t.Context(), server.Client(), queryOf(server))
		server.Close()
		if err != nil || offer.Ahead.Round(time.Hour) != want {
			t.Errorf("%q: %+v, %v", headers, offer, err)
		}
	}
}
