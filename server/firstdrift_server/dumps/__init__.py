"""/dumps: one dump without a partner: its slices, trees and nodes."""
