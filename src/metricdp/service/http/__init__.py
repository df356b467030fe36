"""Requests and answers: the application, its routes and messages, the guard before them, and the server."""
