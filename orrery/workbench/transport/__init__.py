"""The server below the application: signals that end it, connections with deadlines, and requests that are refused."""
