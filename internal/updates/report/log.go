package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
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

// The limits of a log.
const (
	maxLogBytes   = 64 << 20 // about 300,000 reports
	maxEntryBytes = 2 * MaxBytes
)

// A Log is a file to which reports are only appended, as lines of JSON. A report that repeats the last one of its
// cluster is left out. A file that has reached its limit is renamed, and replaces the one before. It is not for
// concurrent use.
//
// Failures are synced to the disk before they are acknowledged: a few failures halt an update. Others are not: the
// kernel writes them also if the process is killed, and those that a power failure loses only make a decision later.
type Log struct {
	file   *os.File
	size   int64
	isTorn bool            // the last line may have no end
	last   map[uint64]byte // condition of the last report, by cluster and version
	seed   maphash.Seed
}

func earlier(path string) string { return path + ".1" }

// Open opens a log or creates it, and passes its entries. Skipped names lines that are not reports, such as one that
// was torn by a crash.
func Open(path string, each func(Entry)) (l *Log, skipped []string, err error) {
	l = &Log{last: map[uint64]byte{}, seed: maphash.MakeSeed()}
	skipped, err = Read(path, func(e Entry) {
		if e.Report != nil {
			l.last[l.key(e.Report)] = e.Condition[0]
		}
		each(e)
	})
	if err != nil {
		return nil, nil, err
	}
	return l, skipped, l.open(path)
}

func (l *Log) open(path string) (err error) {
	if l.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err == nil {
		l.size, l.isTorn = info.Size(), info.Size() > 0
	}
	return err
}

// Read passes the entries of a log that another process may write.
func Read(path string, each func(Entry)) (skipped []string, err error) {
	for _, name := range []string{earlier(path), path} {
		file, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		more, err := readFile(file, each)
		skipped = append(skipped, more...)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
	return skipped, nil
}

func readFile(file *os.File, each func(Entry)) (skipped []string, err error) {
	lines := bufio.NewReaderSize(file, maxEntryBytes)
	for number := 1; err == nil; number++ {
		var line []byte
		line, err = lines.ReadSlice('\n')
		isLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var e Entry
		if isLong || json.Unmarshal(line, &e) != nil || e.Received.IsZero() || e.Report != nil && e.validate() != nil {
			skipped = append(skipped, fmt.Sprintf("%s:%d: skipped: not a report", file.Name(), number))
			continue
		}
		each(e)
	}
	if err == io.EOF {
		err = nil
	}
	return skipped, err
}

// Append appends an entry. It returns false for a report that changes nothing, which is left out.
func (l *Log) Append(e Entry) (bool, error) {
	line, err := json.Marshal(e)
	switch {
	case err != nil:
		return false, err
	case e.Report != nil && l.last[l.key(e.Report)] == e.Condition[0]:
		return false, nil
	case l.size >= maxLogBytes:
		if err := l.rotate(); err != nil {
			return false, err
		}
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
	l.last[l.key(e.Report)] = e.Condition[0]
	if e.Condition == Failed || e.Condition == RolledBack {
		err = l.file.Sync()
	}
	return true, err
}

func (l *Log) key(r *Report) uint64 { return maphash.Comparable(l.seed, [2]string{r.ID, r.Version}) }

func (l *Log) rotate() error {
	path := l.file.Name()
	if err := errors.Join(l.Close(), os.Rename(path, earlier(path))); err != nil {
		return err
	}
	l.last = map[uint64]byte{}
	return l.open(path)
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
