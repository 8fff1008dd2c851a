package signature

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// VerificationFailed is the reason of every error of this package.
const VerificationFailed = "ImageVerificationFailed"

// The timeout of Verify, as in the cluster-version operator, of a repository, and of a store's response.
const (
	maxVerifyTime = 2 * time.Minute
	maxImagesTime = 20 * time.Second
	maxAnswerTime = 15 * time.Second
)

// Stores are the places with signatures that Verify reads beside the stores of a policy.
type Stores struct {
	HTTP       *http.Client // client for the stores of the policy; nil for one with a timeout of 15 seconds
	ConfigMaps corev1client.ConfigMapsGetter
	Namespaces []string // namespaces of ConfigMaps with signatures
	Files      []string // folders like a store of a policy, and files with a ConfigMap
	Images     []Images // where signatures lie beside the image
}

// Images are a repository, layout or archive with an image, and perhaps with its signatures.
type Images struct {
	Name string // shown to users
	Open func(context.Context) (oci.Store, error)
}

// Verify returns the OpenPGP messages because of which an image conforms to the policy; none if only signatures beside
// the image are required. The error names the problem of each signature, and is the same each time.
func (p *Policy) Verify(ctx context.Context, digest string, from Stores) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, maxVerifyTime)
	defer cancel()
	found := p.find(ctx, digest, from, false)
	if err := found.verdict(); err != nil {
		return nil, err
	}
	return found.messages(), nil
}

// A reader adds the signatures of a place. It may end as soon as isEnough reports true.
type reader func(ctx context.Context, isEnough func() bool)

// find looks for the signatures of an image until they suffice, or for all: beside the image, then in files and
// ConfigMaps of the cluster, and then in the stores of the policy. A place that does not answer delays no other.
func (p *Policy) find(ctx context.Context, digest string, from Stores, all bool) *signatureResults {
	found := &signatureResults{policy: p, digest: digest, signed: map[string]bool{}}
	var images, local, web []reader
	for _, item := range from.Images {
		images = append(images, found.ofImages(item))
	}
	for _, file := range from.Files {
		local = append(local, found.ofPlace(fileStore(file)))
	}
	for _, namespace := range from.Namespaces {
		local = append(local, found.ofPlace(configMaps{from.ConfigMaps, namespace}))
	}
	for _, url := range p.stores {
		client := cmp.Or(from.HTTP, newClient(url))
		web = append(web, found.ofPlace(webStore{client, url}))
	}
	keys, keyrings := slices.Collect(maps.Keys(p.keys)), slices.Collect(maps.Keys(p.keyrings))
	found.read(ctx, images, keys, all)
	found.read(ctx, local, keyrings, all)
	found.read(ctx, web, keyrings, all)
	return found
}

// read reads places at the same time until some keyrings or keys have signed the image, or all of these places.
func (s *signatureResults) read(ctx context.Context, places []reader, names []string, all bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	isEnough := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !all && !slices.ContainsFunc(names, func(name string) bool { return !s.signed[name] })
	}
	if len(names) == 0 || isEnough() {
		return
	}
	var reading sync.WaitGroup
	for _, read := range places {
		reading.Go(func() {
			if read(ctx, isEnough); isEnough() {
				cancel()
			}
		})
	}
	reading.Wait()
}

// ofImages returns a reader of the signatures beside an image.
func (s *signatureResults) ofImages(from Images) reader {
	return func(ctx context.Context, _ func() bool) {
		limited, cancel := context.WithTimeout(ctx, maxImagesTime)
		defer cancel()
		var signatures []sigstore.Signature
		store, err := from.Open(limited)
		if err == nil {
			defer store.Close()
			signatures, err = sigstore.Find(limited, store, s.digest)
		}
		isEmpty := true
		for i := range signatures {
			s.add(signatureResult{place: from.Name, name: signatures[i].Name, found: &signatures[i]})
			isEmpty = isEmpty && signatures[i].Format == sigstore.Attestation
		}
		s.end(ctx, from.Name, isEmpty, err)
	}
}

// end adds the error of a place, or that it has nothing. A reader that was canceled has no error: the signatures
// suffice.
func (s *signatureResults) end(ctx context.Context, place string, isEmpty bool, err error) {
	if (err != nil || isEmpty) && !errors.Is(ctx.Err(), context.Canceled) {
		s.add(signatureResult{place: place, err: err, isEmpty: err == nil})
	}
}

// A place is a store that may have signatures.
type place interface {
	String() string
	// each calls try with the signatures of an image and their names, until it returns false.
	each(ctx context.Context, digest string, try func(name string, signature []byte) bool) error
}

// ofPlace returns a reader of the OpenPGP messages of a place.
func (s *signatureResults) ofPlace(from place) reader {
	return func(ctx context.Context, isEnough func() bool) {
		isEmpty := true
		err := from.each(ctx, s.digest, func(name string, signature []byte) bool {
			isEmpty = false
			message, err := unpack(signature)
			s.add(signatureResult{place: from.String(), name: name, message: message, err: err})
			return !isEnough()
		})
		s.end(ctx, from.String(), isEmpty, err)
	}
}

// A signatureResult is a signature, or the reason why there is none.
type signatureResult struct {
	place, name string
	message     []byte              // OpenPGP message, unpacked
	found       *sigstore.Signature // signature beside the image
	err         error
	isEmpty     bool             // the place has no signature of the image
	wrong       map[string]error // by keyrings and keys of its kind: why it is not valid for them
}

// signatureResults collects the results of all places.
type signatureResults struct {
	policy *Policy
	digest string

	mu     sync.Mutex
	all    []signatureResult
	signed map[string]bool // keyrings and keys that have signed the image
}

// add adds a result, and compares it with the policy.
func (s *signatureResults) add(item signatureResult) {
	item.wrong = map[string]error{}
	for _, name := range s.policy.names() {
		_, isKeyring := s.policy.keyrings[name]
		if isKeyring && item.message != nil ||
			!isKeyring && item.found != nil && item.found.Format != sigstore.Attestation {
			item.wrong[name] = s.policy.check(item, s.digest, name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, item)
	for name, err := range item.wrong {
		s.signed[name] = s.signed[name] || err == nil
	}
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

// messages returns one valid message for each keyring.
func (s *signatureResults) messages() (messages [][]byte) {
	all := s.sorted()
	for _, name := range slices.Sorted(maps.Keys(s.policy.keyrings)) {
		i := slices.IndexFunc(all, func(item signatureResult) bool {
			return item.message != nil && item.wrong[name] == nil
		})
		if !slices.ContainsFunc(messages, func(known []byte) bool { return bytes.Equal(known, all[i].message) }) {
			messages = append(messages, all[i].message)
		}
	}
	return messages
}

// maxReasons limits the reasons in a message.
const maxReasons = 6

// verdict returns an error with the keyrings and keys that have not signed an image, and why signatures are not valid;
// nil if all have signed it.
func (s *signatureResults) verdict() error {
	missing := slices.DeleteFunc(s.policy.names(), func(name string) bool { return s.signed[name] })
	if len(missing) == 0 {
		return nil
	}
	var reasons, empty []string
	for _, item := range s.sorted() {
		switch {
		case item.isEmpty:
			empty = append(empty, item.place)
		case item.err != nil:
			reasons = append(reasons, strings.TrimSpace(item.place+" "+item.name)+": "+item.err.Error())
		}
		for _, name := range missing {
			if err := item.wrong[name]; err != nil {
				reasons = append(reasons, fmt.Sprintf("%s %s: %v", item.place, item.name, err))
			}
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
	return newError("unable to verify %s against keyrings: %s (%s): %s", s.digest, strings.Join(missing, ", "),
		s.policy.origin, strings.Join(reasons, "; "))
}

const failedPrefix = "The update cannot be verified: "

// newError returns an error of this package, in the words of the cluster-version operator.
func newError(format string, arguments ...any) error {
	return &reason.Error{
		Reason:  VerificationFailed,
		Message: failedPrefix + printable.Line(fmt.Sprintf(format, arguments...)),
	}
}
