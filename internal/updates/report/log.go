package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"time"
)

// An Entry is a line of the log.
type Entry struct {
	Received  time.Time `json:"received"`
	Address   string    `json:"address,omitempty"`  // the report came from
	HasToken  bool      `json:"hasToken,omitempty"` // sender knows the token of the service
	AwaySince time.Time `json:"awaySince,omitzero"` // only without a report: the service did not listen since then
	*Report   `json:",omitempty"`
}

// ErrFull is the error for a log that has reached its limit.
var ErrFull = errors.New("the log of reports is full")

// The limits of a log.
const (
	maxLogBytes   = 64 << 20 // about 300,000 reports
	maxPerUpdate  = 32       // entries of one cluster for one version
	maxEntryBytes = 2 * MaxBytes
)

// A Log is a file to which reports are only appended, as lines of JSON. A report that repeats the last one of its
// cluster is left out. It is not for concurrent use.
//
// Failures are synced to the disk before they are acknowledged: few of them halt an update. Others are not: the kernel
// writes them also if the process is killed, and those that a power failure loses only make a decision later.
type Log struct {
	file   *os.File
	size   int64
	isTorn bool // the last line has no end
	last   map[uint64]lastReport
	seed   maphash.Seed
}

// A lastReport is the last one of a cluster for a version.
type lastReport struct {
	condition byte
	count     byte
}

// Open opens a log or creates it, and passes its entries. Skipped names lines that are not reports, such as one that
// was torn by a crash.
func Open(path string, each func(Entry)) (l *Log, skipped []string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	l = &Log{file: file, last: map[uint64]lastReport{}, seed: maphash.MakeSeed()}
	skipped, l.isTorn, err = read(file, path, func(e Entry, _ []byte) {
		if key, last := l.lastOf(e.Report); e.Report != nil {
			l.last[key] = lastReport{e.Condition[0], min(last.count, maxPerUpdate-1) + 1}
		}
		each(e)
	})
	if info, statErr := file.Stat(); statErr == nil {
		l.size = info.Size()
	}
	if err != nil {
		return nil, skipped, errors.Join(err, file.Close())
	}
	return l, skipped, nil
}

// Read passes the entries of a log that another process may write.
func Read(path string, each func(Entry)) (skipped []string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	skipped, _, err = read(file, path, func(e Entry, _ []byte) { each(e) })
	return skipped, err
}

func read(file io.Reader, path string, each func(Entry, []byte)) (skipped []string, isTorn bool, err error) {
	lines := bufio.NewReaderSize(file, maxEntryBytes)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		isLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return skipped, isTorn, err
		}
		var e Entry
		switch {
		case len(line) == 0 && err == io.EOF:
			return skipped, isTorn, nil
		case isLong || json.Unmarshal(line, &e) != nil || e.Received.IsZero() ||
			e.Report != nil && e.validate() != nil:
			if len(bytes.TrimSpace(line)) > 0 {
				skipped = append(skipped, fmt.Sprintf("%s:%d: skipped: not a report", path, number))
			}
		default:
			each(e, line)
		}
		if isTorn = err == io.EOF; isTorn {
			return skipped, isTorn, nil
		}
	}
}

// Append appends an entry. It returns false for a report that changes nothing, which is left out.
func (l *Log) Append(e Entry) (bool, error) {
	line, err := json.Marshal(e)
	switch {
	case err != nil:
		return false, err
	case l.IsFull():
		return false, ErrFull
	}
	key, last := l.lastOf(e.Report)
	if e.Report != nil && !last.isChangedBy(e.Report) {
		return false, nil
	}
	line = append(line, '\n')
	if l.isTorn {
		line = append([]byte{'\n'}, line...)
	}
	written, err := l.file.Write(line) // in one piece
	l.size += int64(written)
	if l.isTorn = err != nil; l.isTorn || e.Report == nil {
		return true, err
	}
	l.last[key] = lastReport{e.Condition[0], last.count + 1}
	if e.Condition == Failed || e.Condition == RolledBack {
		err = l.file.Sync()
	}
	return true, err
}

func (l *Log) lastOf(r *Report) (key uint64, last lastReport) {
	if r == nil {
		return 0, last
	}
	key = maphash.Comparable(l.seed, [2]string{r.ID, r.Version})
	return key, l.last[key]
}

// isChangedBy reports whether a report differs from the last one. A cluster that alternates does not fill the log.
func (l lastReport) isChangedBy(r *Report) bool {
	return l.condition != r.Condition[0] && l.count < maxPerUpdate
}

// IsFull reports whether the log has reached its limit.
func (l *Log) IsFull() bool { return l.size >= maxLogBytes }

// Shrink removes the reports of the versions that are not needed.
func (l *Log) Shrink(isNeeded func(version string) bool) (err error) {
	path := l.file.Name()
	shorter, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, shorter.Close(), os.Remove(shorter.Name()))
		}
	}()
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	out := bufio.NewWriter(shorter)
	if _, _, err := read(l.file, path, func(e Entry, line []byte) {
		if e.Report == nil || isNeeded(e.Version) {
			_, _ = out.Write(bytes.TrimRight(line, "\n"))
			_ = out.WriteByte('\n') // Flush returns the error
		}
	}); err != nil {
		return err
	}
	if err := errors.Join(out.Flush(), shorter.Sync()); err != nil {
		return err
	}
	if err := os.Rename(shorter.Name(), path); err != nil {
		return err
	}
	_ = shorter.Close()
	replaced, _, err := Open(path, func(Entry) {})
	if err != nil {
		return err
	}
	_ = l.file.Close()
	*l = *replaced
	return nil
}

// Touch records that the service is listening, in the time of the file: a line a minute would fill the log.
func (l *Log) Touch(now time.Time) error { return os.Chtimes(l.file.Name(), now, now) }

// Touched returns when the service was last listening; zero for a new log.
func (l *Log) Touched() time.Time {
	info, err := l.file.Stat()
	if err != nil || info.Size() == 0 {
		return time.Time{}
	}
	return info.ModTime()
}

// Close closes the log.
func (l *Log) Close() error { return errors.Join(l.file.Sync(), l.file.Close()) }
