package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// HasBlob implements Target.
func (r *registryStore) HasBlob(ctx context.Context, described v1.Descriptor) (bool, error) {
	address := r.address("blobs/%s", described.Digest)
	response, err := r.ask(ctx, http.MethodHead, address, http.StatusOK, http.StatusNotFound)
	if err != nil {
		return false, err
	}
	hasSize := response.ContentLength == described.Size || response.ContentLength < 0
	return response.StatusCode == http.StatusOK && hasSize, nil
}

// Mount takes over a blob from another repository of the same registry, and reports whether the registry does so.
func (r *registryStore) Mount(ctx context.Context, described v1.Descriptor, from Store) (bool, error) {
	source, isRegistry := from.(*registryStore)
	if !isRegistry || source.repo.RegistryStr() != r.repo.RegistryStr() || source.repo == r.repo {
		return false, nil
	}
	mounter := &client{repo: r.repo, base: r.base, scopes: slices.Concat(source.scopes, r.scopes)}
	mounter.attempts.Store(maxAttempts)
	known, _ := r.mounters.LoadOrStore(source.repo, mounter)
	if mounter = known.(*client); mounter == nil {
		return false, nil
	}
	question := url.Values{"mount": {described.Digest.String()}, "from": {source.repo.RepositoryStr()}}
	address := r.address("blobs/uploads/?%s", question.Encode())
	response, err := mounter.ask(ctx, http.MethodPost, address, http.StatusCreated, http.StatusAccepted)
	if err != nil {
		r.mounters.Store(source.repo, (*client)(nil))
		return false, ctx.Err()
	}
	return response.StatusCode == http.StatusCreated, nil // otherwise, an upload has begun, which is not used
}

// An upload is the upload of one blob, which continues on another connection where the registry supports that.
type upload struct {
	*registryStore
	described v1.Descriptor
	open      func(offset int64) (io.ReadCloser, error)
	location  *url.URL // of the upload; nil before its beginning
	offset    int64    // bytes that the registry has
	isResumed bool
	failure   atomic.Pointer[error] // of the content: that of the request may hide it
}

// PutBlob implements Target. The registry compares the digest as well.
func (r *registryStore) PutBlob(ctx context.Context, described v1.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	u := &upload{registryStore: r, described: described, open: open}
	attempts := retrier{limit: maxPatient}
	for begin := true; ; begin = false {
		err := u.begin(ctx, begin)
		if err == nil && u.location != nil {
			err = u.send(ctx)
		}
		if err == nil {
			return nil
		}
		attempts.reach(u.offset)
		if err := attempts.pause(ctx, err); err != nil {
			return err
		}
	}
}

// begin begins the upload, or finds out how far it is. Without a location afterwards, the registry has the blob.
func (u *upload) begin(ctx context.Context, isFirst bool) error {
	if !isFirst {
		if hasBlob, err := u.HasBlob(ctx, u.described); err != nil || hasBlob {
			u.location = nil
			return err
		}
	}
	if u.location != nil && u.findOffset(ctx) {
		return nil
	}
	response, err := u.ask(ctx, http.MethodPost, u.address("blobs/uploads/"), http.StatusAccepted)
	if errors.Is(err, ErrNotFound) {
		return &RewordedError{Text: fmt.Sprintf("%s has no repository %s, and does not create it", u.repo.RegistryStr(),
			u.repo.RepositoryStr()), Err: err}
	}
	if err != nil {
		return err
	}
	u.offset, u.isResumed = 0, false
	return u.locate(response)
}

// findOffset reports whether the registry has kept the begin of the upload.
func (u *upload) findOffset(ctx context.Context) bool {
	response, err := u.ask(ctx, http.MethodGet, u.location.String(), http.StatusNoContent, http.StatusAccepted)
	if err != nil {
		return false
	}
	var first, last int64
	_, err = fmt.Sscanf(strings.TrimPrefix(response.Header.Get("Range"), "bytes="), "%d-%d", &first, &last)
	if err != nil || first != 0 || last <= 0 || last >= u.described.Size || u.locate(response) != nil {
		return false
	}
	u.offset, u.isResumed = last+1, true
	return true
}

// locate takes over the location of the upload from a response.
func (u *upload) locate(response *http.Response) error {
	response.Body.Close()
	location, err := response.Location()
	if err != nil {
		return errors.New(u.repo.RegistryStr() + " gives no address for the upload")
	}
	u.location = location
	return nil
}

// send sends the rest of the blob, and completes the upload.
func (u *upload) send(ctx context.Context) error {
	if u.offset < u.described.Size || u.described.Size == 0 {
		if err := u.patch(ctx); err != nil {
			return err
		}
	}
	location, query := *u.location, u.location.Query()
	query.Set("digest", u.described.Digest.String())
	location.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, location.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err := u.doOnce(request, http.StatusCreated, http.StatusNoContent)
	if err != nil {
		return u.restart(err)
	}
	response.Body.Close()
	return nil
}

// restart makes the next attempt begin anew if the registry has lost the upload, or may have mixed up its parts.
func (u *upload) restart(err error) error {
	var status *transport.Error
	isLost := errors.As(err, &status) && (status.StatusCode == http.StatusNotFound ||
		status.StatusCode == http.StatusRequestedRangeNotSatisfiable)
	if errors.As(err, new(*temporaryError)) || !isLost && !u.isResumed {
		return err
	}
	u.location = nil
	return &temporaryError{err: err}
}

// patch sends the content from the offset on.
func (u *upload) patch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, u.location.String(), nil)
	if err != nil {
		return err
	}
	u.failure.Store(nil)
	request.GetBody = func() (io.ReadCloser, error) {
		content, err := u.open(u.offset)
		if err != nil {
			u.failure.Store(&err)
			return nil, err
		}
		return newUploadBody(content, u, cancel)
	}
	request.ContentLength = u.described.Size - u.offset
	request.Header.Set("Content-Type", "application/octet-stream")
	if u.offset > 0 {
		request.Header.Set("Content-Range", fmt.Sprintf("%d-%d", u.offset, u.described.Size-1))
	}
	response, err := u.doOnce(request, http.StatusAccepted, http.StatusNoContent, http.StatusCreated)
	var stalled *temporaryError
	switch failure := u.failure.Load(); {
	case err == nil:
		return u.locate(response)
	case failure != nil:
		return *failure
	case errors.As(context.Cause(ctx), &stalled):
		return stalled
	default:
		return u.restart(err)
	}
}

// An uploadBody is content on its way to a registry. It cancels the request when the registry takes none for too long.
type uploadBody struct {
	io.Reader
	*upload
	content io.ReadCloser
	stall   *time.Timer

	mu       sync.Mutex
	isClosed bool
}

func newUploadBody(content io.ReadCloser, u *upload, cancel context.CancelCauseFunc) (*uploadBody, error) {
	body := &uploadBody{Reader: content, upload: u, content: content}
	if u.offset == 0 {
		var err error
		if body.Reader, err = NewDigestReader(content, u.described); err != nil {
			return nil, err
		}
	}
	body.stall = time.AfterFunc(stallTime, func() {
		cancel(&temporaryError{err: limitError(fmt.Sprintf("%s takes no content for %s: check your network, or try "+
			"again later", u.repo.RegistryStr(), stallTime))})
	})
	return body, nil
}

// Read implements io.Reader. With HTTP/2, it may be under way when the registry has answered and the body is closed.
func (u *uploadBody) Read(p []byte) (int, error) {
	u.stall.Stop()
	n, err := u.Reader.Read(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.isClosed:
	case err == nil:
		u.stall.Reset(stallTime)
	case err == io.EOF:
		u.stall.Reset(storeTime)
	default:
		u.failure.Store(&err)
	}
	return n, err
}

// Close implements io.Closer.
func (u *uploadBody) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.isClosed = true
	u.stall.Stop()
	return u.content.Close()
}

// PutManifest implements Target.
func (r *registryStore) PutManifest(ctx context.Context, described v1.Descriptor, raw []byte, tag string) error {
	if err := CheckManifest(described, raw); err != nil {
		return err
	}
	if tag == "" {
		tag = described.Digest.String()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, r.address("manifests/%s", tag), nil)
	if err != nil {
		return err
	}
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	request.ContentLength = int64(len(raw))
	request.Header.Set("Content-Type", string(mediaType(raw, described.MediaType)))
	response, err := r.do(request, http.StatusCreated, http.StatusOK, http.StatusAccepted)
	if err != nil {
		return fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	response.Body.Close()
	refers, err := asReferrer(described, raw)
	if err != nil || refers == nil || response.Header.Get("OCI-Subject") != "" {
		return err
	}
	return r.addReferrer(ctx, refers.subject, refers.described)
}

// A referrer is a manifest with a subject.
type referrer struct {
	subject   v1.Hash
	described v1.Descriptor // as lists of referrers have it
}

// asReferrer returns a manifest as a referrer, or nil if it has no subject.
func asReferrer(described v1.Descriptor, raw []byte) (*referrer, error) {
	var manifest v1.Manifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	if manifest.Subject == nil {
		return nil, nil
	}
	if manifest.ArtifactType == "" {
		manifest.ArtifactType = string(manifest.Config.MediaType)
	}
	return &referrer{manifest.Subject.Digest, v1.Descriptor{
		MediaType:    described.MediaType,
		Digest:       described.Digest,
		Size:         described.Size,
		ArtifactType: manifest.ArtifactType,
		Annotations:  manifest.Annotations,
	}}, nil
}

// addReferrer adds a referrer to the index with the tag of its subject, unless the registry lists it by itself.
func (r *registryStore) addReferrer(ctx context.Context, subject v1.Hash, added v1.Descriptor) error {
	r.fallback.Lock()
	defer r.fallback.Unlock()
	if _, hasAPI, err := r.listReferrers(ctx, subject); err != nil || hasAPI {
		return err
	}
	listed, err := r.fallbackReferrers(ctx, subject)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(listed, func(d v1.Descriptor) bool { return d.Digest == added.Digest }) {
		return nil
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: append(listed, added)}
	raw, err := json.Marshal(index)
	if err != nil {
		return err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return r.PutManifest(ctx, v1.Descriptor{MediaType: types.OCIImageIndex, Digest: digest, Size: size}, raw,
		fallbackTag(subject))
}

// Commit implements Target: a registry has no drafts.
func (*registryStore) Commit(context.Context) error { return nil }
