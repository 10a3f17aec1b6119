package saved

import (
	"errors"
	"os"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

func TestOwner(t *testing.T) {
	a, b := Broker{"c", "a"}, Broker{"c", "b"}
	disk := memfs.New()
	if err := durable.MkdirAll(disk, "root"); err != nil {
		t.Fatal(err)
	}
	check := func(who Broker, want error) {
		t.Helper()
		if err := New(disk, "root").CheckOwner(who); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", who, err, want)
		}
	}
	adopt := func(who, want Broker) {
		t.Helper()
		if was, err := Adopt(disk, "root", who); err != nil || was != want {
			t.Errorf("adopted by %v: was %v's, %v; want %v", who, was, err, want)
		}
	}
	check(a, nil)
	adopt(a, Broker{})
	f := opened(t, disk) // of a version that did not save the names
	check(a, nil)
	adopt(a, Broker{})
	l := lineage()
	l.Cluster, l.BrokerName = a.Cluster, a.Name
	if err := f.Write(l); err != nil {
		t.Fatal(err)
	}
	check(a, nil)
	check(b, ErrOtherBroker)
	full(disk, true)
	if _, err := Adopt(disk, "root", b); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("adopted on a full disk: %v", err)
	}
	full(disk, false)
	check(b, ErrOtherBroker)
	adopt(b, a)
	check(a, ErrOtherBroker)
	check(b, nil)
	adopt(b, b)
	if got, _, _, err := New(disk, "root").Read(); err != nil || got.Promise != l.Promise || got.Role != l.Role || got.Held != l.Held {
		t.Errorf("%+v is kept of %+v, %v", got, l, err)
	}

	// The backup, which still says a, neither refuses nor becomes the newest: what a start makes of a backup would be lost.
	file, err := disk.OpenFile("root/tandem/lineage", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("rotten"), 40); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	check(b, nil)
	adopt(b, Broker{})
	if got, _, backup, err := New(disk, "root").Read(); err != nil || !backup || got.BrokerName != a.Name {
		t.Errorf("%+v, backup %t, %v", got, backup, err)
	}
}
