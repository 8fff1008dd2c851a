package signature

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/openshift/library-go/pkg/verify"
	"github.com/openshift/library-go/pkg/verify/store"
	"github.com/openshift/library-go/pkg/verify/store/serial"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// VerificationFailed is the reason of every error of this package.
const VerificationFailed = "ImageVerificationFailed"

// The timeout of Verify, as in the cluster-version operator, and of one response of a store.
const (
	maxVerifyTime = 2 * time.Minute
	maxAnswerTime = 15 * time.Second
)

// Stores are the places with signatures that Verify reads beside the stores of a policy.
type Stores struct {
	HTTP       *http.Client // client for the stores of the policy; nil for a client with a timeout of 15 seconds
	ConfigMaps corev1client.ConfigMapsGetter
	Namespaces []string // namespaces of ConfigMaps with signatures
}

// Verify returns the signatures because of which an image conforms to the policy. It reads ConfigMaps of the cluster
// first, and then all stores of the policy at once. The error names the problem of each signature, and
// is the same each time.
func (p *Policy) Verify(ctx context.Context, digest string, from Stores) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, maxVerifyTime)
	defer cancel()
	found := &signatureResults{}
	verifier := verify.NewReleaseVerifier(p.keyrings, &serial.Store{Stores: p.storesToQuery(from, found)})
	if err := verifier.Verify(ctx, digest); err != nil {
		return nil, found.explain(p, digest)
	}
	return verifier.Signatures()[digest], nil
}

// storesToQuery returns the stores to query, in order.
func (p *Policy) storesToQuery(from Stores, found *signatureResults) []store.Store {
	var all, web []store.Store
	for _, namespace := range from.Namespaces {
		all = append(all, &resultStore{configMaps{from.ConfigMaps, namespace}, found})
	}
	client := cmp.Or(from.HTTP, &http.Client{Timeout: maxAnswerTime})
	for _, url := range p.stores {
		web = append(web, &resultStore{webStore{client, url}, found})
	}
	return append(all, &parallelStore{web})
}

// A parallelStore queries several stores at the same time, until the signatures suffice. The parallel store of
// library-go may drop a response that arrives just as the last store ends.
type parallelStore struct{ stores []store.Store }

// Signatures implements store.Store.
func (s *parallelStore) Signatures(ctx context.Context, name, digest string, fn store.Callback) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	isOver := false
	var ended error
	try := func(ctx context.Context, signature []byte, errIn error) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if isOver {
			return true, nil
		}
		isOver, ended = fn(ctx, signature, errIn)
		if isOver = isOver || ended != nil; isOver {
			cancel()
		}
		return isOver, ended
	}
	var all errgroup.Group
	for _, item := range s.stores {
		all.Go(func() error { return item.Signatures(ctx, name, digest, try) })
	}
	if err := all.Wait(); !isOver {
		return err
	}
	return ended
}

// String implements store.Store.
func (s *parallelStore) String() string { return "the stores of the release" }

// A place is a store that may have signatures.
type place interface {
	String() string
	// each calls try with the signatures of an image and their names, until it returns false.
	each(ctx context.Context, digest string, try func(name string, signature []byte) bool) error
}

// A resultStore passes on the unpacked signatures of a place, and collects the results.
type resultStore struct {
	place
	results *signatureResults
}

// Signatures implements store.Store. The failure of a place becomes a result, and other places are still queried.
func (r *resultStore) Signatures(ctx context.Context, _, digest string, fn store.Callback) error {
	count := 0
	var ended error
	err := r.each(ctx, digest, func(name string, signature []byte) bool {
		count++
		message, err := unpack(signature)
		r.results.add(signatureResult{place: r.String(), name: name, message: message, err: err})
		if err != nil {
			return true
		}
		var isEnough bool
		isEnough, ended = fn(ctx, message, nil)
		return !isEnough && ended == nil
	})
	switch {
	case err != nil:
		r.results.add(signatureResult{place: r.String(), err: err})
	case count == 0:
		r.results.add(signatureResult{place: r.String(), isEmpty: true})
	}
	return ended
}

// A signatureResult is a signature, or the reason why there is none.
type signatureResult struct {
	place, name string
	message     []byte // unpacked
	err         error
	isEmpty     bool // the place has no signature of the image
}

// signatureResults collects the results of all places.
type signatureResults struct {
	mu  sync.Mutex
	all []signatureResult
}

func (s *signatureResults) add(item signatureResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, item)
}

// maxReasons limits the reasons in a message.
const maxReasons = 6

// explain returns an error with the keyrings that have not signed an image, and the reasons.
func (s *signatureResults) explain(p *Policy, digest string) error {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	slices.SortStableFunc(all, func(a, b signatureResult) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.name, b.name))
	})
	var missing, reasons, empty []string
	for _, name := range p.keyringNames() {
		wrong, isSigned := checkSignatures(all, digest, name, p.keyrings[name])
		if !isSigned {
			missing, reasons = append(missing, name), append(reasons, wrong...)
		}
	}
	if len(missing) == 0 {
		missing = p.keyringNames()
	}
	for _, item := range all {
		switch {
		case item.isEmpty:
			empty = append(empty, item.place)
		case item.err != nil:
			reasons = append(reasons, strings.TrimSpace(item.place+" "+item.name)+": "+item.err.Error())
		}
	}
	if len(empty) > 0 {
		reasons = append(reasons, "no signature for it in "+strings.Join(empty, ", "))
	}
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return newError("unable to verify %s against keyrings: %s (%s): %s", digest, strings.Join(missing, ", "), p.origin,
		strings.Join(reasons, "; "))
}

// newError returns an error of this package, in the words of the cluster-version operator.
func newError(format string, arguments ...any) error {
	return &reason.Error{
		Reason:  VerificationFailed,
		Message: "The update cannot be verified: " + printable.Line(fmt.Sprintf(format, arguments...)),
	}
}
