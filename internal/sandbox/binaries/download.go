package binaries

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

// DownloadsVariable names the address of a folder with the archives, instead of that of the release. If it is "none",
// nothing is downloaded.
const DownloadsVariable = "RUNLEVEL_SANDBOX_DOWNLOADS"

// releases is the parent folder of the files of each release.
const releases = "https://github.com/runlevel/runlevel/releases/download/"

// Limits of a download. If one is exceeded, the programs are compiled.
const (
	maxSilence  = 15 * time.Second // until the answer, and between parts of the file
	maxDuration = 15 * time.Minute
	maxArchive  = 200_000_000 // bytes; an archive has a quarter
)

// A download is the archive of a module.
type download struct {
	address    string
	digest     string // SHA-256
	maxSilence time.Duration
}

// findDownload returns the archive of the module, or nil if there is none, or the user does not want it.
func (m *module) findDownload() (*download, error) {
	_, values := Archives()
	digest, folder := values[m.archiveName()], os.Getenv(DownloadsVariable)
	if folder == "" {
		folder = releases + values["release"]
	}
	if digest == "" || folder == "none" {
		return nil, nil
	}
	address, err := url.Parse(folder)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("%s is %q: write the http or https address of a folder with archives, or \"none\"",
			DownloadsVariable, folder)
	}
	return &download{address.JoinPath(m.archiveName()).String(), digest, maxSilence}, nil
}

// run downloads the archive, verifies it, and writes its program to a file.
func (d *download) run(ctx context.Context, file string, m *module, progress io.Writer) error {
	archive, err := os.Create(file + ".tar.gz")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(archive.Close(), os.Remove(archive.Name())) }()
	fmt.Fprintf(progress, "downloading "+m.contents+" from %s\n", m.version, d.address)
	meter := newMeter(progress)
	defer meter.close()
	hash := sha256.New()
	if err := d.fetch(ctx, io.MultiWriter(archive, hash), meter); err != nil {
		return err
	}
	if digest := fmt.Sprintf("%x", hash.Sum(nil)); digest != d.digest {
		return fmt.Errorf("its digest is %s, want %s", digest, d.digest)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := unpack(archive, file); err != nil {
		return err
	}
	meter.done("downloaded")
	return nil
}

// fetch writes the file at the address to a writer.
func (d *download) fetch(ctx context.Context, out io.Writer, meter *meter) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxDuration, fmt.Errorf("it took longer than %s", maxDuration))
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	silence := time.AfterFunc(d.maxSilence, func() {
		abort(fmt.Errorf("the server sent nothing for %s", d.maxSilence))
	})
	defer silence.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept-Encoding", "identity") // the digest is that of the compressed file
	meter.begin("downloading: %d MB", 0, nil)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return firstCause(ctx, errors.Unwrap(err)) // without the address
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	const mega = 1_000_000
	size := int(response.ContentLength) / mega
	meter.begin(fmt.Sprintf("downloading: %%d of %d MB", size), size, nil)
	read := 0
	body := readerFunc(func(part []byte) (int, error) {
		count, err := response.Body.Read(part)
		silence.Reset(d.maxSilence)
		read += count
		meter.set(read / mega)
		return count, err
	})
	if _, err := io.Copy(out, io.LimitReader(body, maxArchive)); err != nil {
		return firstCause(ctx, fmt.Errorf("%w after %d bytes", err, read))
	}
	return nil
}

// firstCause returns why the context ended, or err if it has not.
func firstCause(ctx context.Context, err error) error {
	return cmp.Or(context.Cause(ctx), err)
}

// A readerFunc is a function that reads.
type readerFunc func(part []byte) (int, error)

func (f readerFunc) Read(part []byte) (int, error) { return f(part) }
