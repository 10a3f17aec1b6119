package main

import (
	"context"
	"errors"
)

// cluster is a master that takes puts and slaves that may be connected to it.
type cluster struct {
	r      *rig
	master *worker
	at     address
	slaves []*slave
	joined int // the first of them
}

type slave struct {
	*worker
	at int // end of its log
}

// address is where slaves reach a master.
type address struct{ stream, control string }

// cluster returns this round's master with n slaves connected that have everything.
func (r *rig) cluster(ctx context.Context, n int) (*cluster, error) {
	if r.puts == nil {
		c := &cluster{r: r}
		r.puts = c
		if err := c.start(ctx); err != nil {
			return nil, err
		}
	}
	return r.puts, r.puts.connect(ctx, n)
}

// start opens the master and puts until its first file is full: the one that follows was made ahead, as all later ones are.
func (c *cluster) start(ctx context.Context) (err error) {
	if c.master, err = c.r.open(ctx, c.r.mem, putFile, ""); err != nil {
		return err
	}
	if c.at, err = lead(c.master, c.r.congestion); err != nil {
		return err
	}
	_, err = c.master.do("fill body=%d bytes=%d", 32<<10, putFile)
	return err
}

// room is what a file has to have left before a measurement: a file in memory is 256 MiB of zeros to be written first, by every node.
const room = 160 << 20

// roll begins another file where the last one has no room, and returns the end of the log.
func (c *cluster) roll() (int, error) {
	for bytes := 1; ; {
		a, err := c.master.do("fill body=%d bytes=%d", bodySize, bytes)
		if err != nil {
			return 0, err
		}
		end := int(a.Number["end"])
		if bytes = putFile - end%putFile; bytes >= room {
			return end, nil
		}
	}
}

func (c *cluster) connect(ctx context.Context, n int) error {
	end, err := c.roll()
	if err != nil {
		return err
	}
	for len(c.slaves) < n {
		w, err := c.r.open(ctx, c.r.mem, putFile, "")
		if err != nil {
			return err
		}
		start := end - end%putFile
		c.slaves = append(c.slaves, &slave{worker: w, at: start})
		if _, err := w.do("reset start=%d", start); err != nil {
			return err
		}
	}
	for ; c.joined < n; c.joined++ {
		s := c.slaves[c.joined]
		if err := join(c.master, c.at, s.worker, c.joined, s.at, 0, c.r.congestion); err != nil {
			return err
		}
	}
	for ; c.joined > n; c.joined-- {
		s := c.slaves[c.joined-1]
		a, err := s.do("leave")
		if err != nil {
			return err
		}
		s.at = int(a.Number["end"])
	}
	if n == 0 {
		return nil
	}
	for _, s := range c.slaves[:n] { // it has its file and its queues
		if _, err := s.do("arrived to=%d", end); err != nil {
			return err
		}
	}
	_, err = c.master.do("acked slaves=%d", n)
	return err
}

// lead opens a master for puts and slaves.
func lead(master *worker, congestion string) (address, error) {
	a, err := master.do("lead congestion=%s", congestion)
	return address{stream: a.Text["addr"], control: a.Text["control"]}, err
}

// join connects a slave to a master. frame 0: the size that a RocketMQ slave gets. Without a control address no control
// stream tells the slave what it may dispatch, and it dispatches all that comes.
func join(master *worker, at address, slave *worker, node, start, frame int, congestion string) error {
	a, err := master.do("grant node=%d start=%d frame=%d", node, start, frame)
	if err != nil {
		return err
	}
	_, err = slave.do("join addr=%s control=%s token=%s frame=%d congestion=%s", at.stream, at.control, a.Text["token"], frame, congestion)
	return err
}

func (c *cluster) end() error {
	var errs []error
	for _, s := range c.slaves {
		errs = append(errs, s.end())
	}
	if c.master != nil {
		errs = append(errs, c.master.end())
	}
	return errors.Join(errs...)
}
