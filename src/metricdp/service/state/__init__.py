"""What the service knows between requests: settings, mechanisms, keys, draws that wait, counters. No HTTP here."""
