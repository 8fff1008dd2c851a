package signature

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/openshift/library-go/pkg/verify"
	"github.com/openshift/library-go/pkg/verify/store"
	"github.com/openshift/library-go/pkg/verify/store/serial"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
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
	Files      []string // folders like a store of a policy, and files with a ConfigMap
	Images     []Images // where signatures lie beside the image, in the order in which they are read
}

// Images are a repository, layout or archive with an image, and perhaps with its signatures.
type Images struct {
	Name string // shown to users
	Open func(context.Context) (oci.Store, error)
}

// Verify returns the OpenPGP messages because of which an image conforms to the policy; none if only signatures beside
// the image are required. It reads those first, then ConfigMaps of the cluster, and then all stores of the policy at
// once. The error names the problem of each signature, and is the same each time.
func (p *Policy) Verify(ctx context.Context, digest string, from Stores) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, maxVerifyTime)
	defer cancel()
	found := &signatureResults{}
	p.readImages(ctx, digest, from.Images, found)
	isSigned := true
	var messages [][]byte
	if len(p.keyrings) > 0 {
		verifier := verify.NewReleaseVerifier(p.keyrings, &serial.Store{Stores: p.storesToQuery(digest, from, found)})
		isSigned = verifier.Verify(ctx, digest) == nil
		messages = verifier.Signatures()[digest]
	}
	if missing, reasons := found.judge(p, digest); !isSigned || len(missing) > 0 {
		return nil, found.explain(p, digest, missing, reasons)
	}
	return messages, nil
}

// readImages reads the signatures beside the image, until they suffice.
func (p *Policy) readImages(ctx context.Context, digest string, from []Images, found *signatureResults) {
	isMissing := func(name string) bool {
		_, isSigned := found.check(p, digest, name)
		return !isSigned
	}
	for _, images := range from {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(p.keys)), isMissing) {
			return
		}
		signatures, err := images.find(ctx, digest)
		for i := range signatures {
			found.add(signatureResult{place: images.Name, name: signatures[i].Name, found: &signatures[i]})
		}
		if err != nil || len(signatures) == 0 {
			found.add(signatureResult{place: images.Name, err: err, isEmpty: err == nil})
		}
	}
}

func (i Images) find(ctx context.Context, digest string) ([]sigstore.Signature, error) {
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	store, err := i.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return sigstore.Find(ctx, store, hash)
}

// storesToQuery returns the stores to query, in order.
func (p *Policy) storesToQuery(digest string, from Stores, found *signatureResults) []store.Store {
	var all, web []store.Store
	for _, file := range from.Files {
		all = append(all, &resultStore{fileStore(file), p, digest, found})
	}
	for _, namespace := range from.Namespaces {
		all = append(all, &resultStore{configMaps{from.ConfigMaps, namespace}, p, digest, found})
	}
	client := cmp.Or(from.HTTP, &http.Client{Timeout: maxAnswerTime})
	for _, url := range p.stores {
		web = append(web, &resultStore{webStore{client, url}, p, digest, found})
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

// A resultStore passes on the unpacked signatures of a place that are valid for a keyring, and collects the results.
type resultStore struct {
	place
	policy  *Policy
	digest  string
	results *signatureResults
}

// Signatures implements store.Store. The failure of a place becomes a result, and other places are still queried.
func (r *resultStore) Signatures(ctx context.Context, _, digest string, fn store.Callback) error {
	count := 0
	var ended error
	err := r.each(ctx, digest, func(name string, signature []byte) bool {
		count++
		message, err := unpack(signature)
		result := signatureResult{place: r.String(), name: name, message: message, err: err}
		r.results.add(result)
		if err != nil || !r.isValid(result) {
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

// isValid reports whether a message is valid for a keyring. It is stricter than the library.
func (r *resultStore) isValid(result signatureResult) bool {
	for name := range r.policy.keyrings {
		if r.policy.check(result, r.digest, name) == nil {
			return true
		}
	}
	return false
}

// A signatureResult is a signature, or the reason why there is none.
type signatureResult struct {
	place, name string
	message     []byte              // OpenPGP message, unpacked
	found       *sigstore.Signature // signature beside the image
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

// check returns why signatures are not valid for a keyring or keys of a policy, and whether one is.
func (s *signatureResults) check(p *Policy, digest, name string) (wrong []string, isSigned bool) {
	for _, item := range s.sorted() {
		if _, isKeyring := p.keyrings[name]; isKeyring && item.message == nil || !isKeyring && item.found == nil {
			continue
		}
		err := p.check(item, digest, name)
		if err == nil {
			return nil, true
		}
		wrong = append(wrong, fmt.Sprintf("%s %s: %v", item.place, item.name, err))
	}
	return wrong, false
}

func (s *signatureResults) sorted() []signatureResult {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	slices.SortStableFunc(all, func(a, b signatureResult) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.name, b.name))
	})
	return all
}

// judge returns the keyrings and keys of a policy that have not signed an image, and why signatures are not valid.
func (s *signatureResults) judge(p *Policy, digest string) (missing, reasons []string) {
	for _, name := range p.names() {
		wrong, isSigned := s.check(p, digest, name)
		if !isSigned {
			missing, reasons = append(missing, name), append(reasons, wrong...)
		}
	}
	return missing, reasons
}

// explain returns an error with the keyrings and keys that have not signed an image, and the reasons.
func (s *signatureResults) explain(p *Policy, digest string, missing, reasons []string) error {
	if len(missing) == 0 {
		missing = p.names()
	}
	var empty []string
	for _, item := range s.sorted() {
		switch {
		case item.isEmpty:
			empty = append(empty, item.place)
		case item.err != nil:
			reasons = append(reasons, strings.TrimSpace(item.place+" "+item.name)+": "+item.err.Error())
		}
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	if len(empty) > 0 {
		reasons = append(reasons, "no signature for it in "+strings.Join(empty, ", "))
	}
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return newError("unable to verify %s against keyrings: %s (%s): %s", digest, strings.Join(missing, ", "), p.origin,
		strings.Join(reasons, "; "))
}

const failedPrefix = "The update cannot be verified: "

// newError returns an error of this package, in the words of the cluster-version operator.
func newError(format string, arguments ...any) error {
	return &reason.Error{
		Reason:  VerificationFailed,
		Message: failedPrefix + printable.Line(fmt.Sprintf(format, arguments...)),
	}
}
