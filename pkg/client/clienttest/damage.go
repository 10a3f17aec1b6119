package clienttest

import (
	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// OnScrub sets what Scrub answers, OnRepair what Repair does; an error ends the stream after the answers.
func (s *Storage) OnScrub(f func(*storagev1.ScrubRequest) ([]*storagev1.ScrubResponse, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onScrub = f
}

// OnRepair is the same for Repair.
func (s *Storage) OnRepair(f func(*storagev1.RepairRequest) ([]*storagev1.RepairResponse, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRepair = f
}

// Scrub implements StorageAdminService.
func (s *Storage) Scrub(req *storagev1.ScrubRequest, stream grpc.ServerStreamingServer[storagev1.ScrubResponse]) error {
	s.mu.Lock()
	f := s.onScrub
	s.mu.Unlock()
	if f == nil {
		return stream.Send(&storagev1.ScrubResponse{News: &storagev1.ScrubResponse_Summary{Summary: &storagev1.ScrubSummary{}}})
	}
	all, err := f(req)
	for _, resp := range all {
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
	return err
}

// Repair implements StorageAdminService.
func (s *Storage) Repair(req *storagev1.RepairRequest, stream grpc.ServerStreamingServer[storagev1.RepairResponse]) error {
	s.mu.Lock()
	f := s.onRepair
	s.mu.Unlock()
	if f == nil {
		return stream.Send(&storagev1.RepairResponse{News: &storagev1.RepairResponse_Summary{Summary: &storagev1.RepairSummary{}}})
	}
	all, err := f(req)
	for _, resp := range all {
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
	return err
}
